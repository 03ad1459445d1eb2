-- What people look at: the published statistics, and beside them why something stands still. Nothing here locks.

-- name: status_of_subscriptions
-- One row a subscription, as stats_v1 has it. Failing keys are counted to 1,000 only, so that a look costs the same with a million.
select v.subscription, v.app, v.group_name, v.status, v.status_reason, v.position, v.head, v.horizon_held_seconds,
       v.unrouted, v.held, v.inboxed, v.waiting, v.in_flight, v.oldest_seconds, v.pending_partitions,
       v.touched_partitions, v.largest_partition, v.parked, v.next_due_at, v.arrivals_total, v.processed_total,
       v.busy_seconds_total, v.workers, v.capacity, v.sampled_at,
       s.kind, s.partitioned, s.error_class, s.retry_at, coalesce(c.exact, true) as exact,
       coalesce(c.notes, '{}') as notes,
       (select count(*) from (select from headrace.failures f
                               where f.run = s.run and f.state = 'backing off' limit 1000) x) as backing_off
  from headrace.stats_of_v1($1::text[]) v
  join headrace.subscriptions s on s.name = v.subscription
  left join headrace.sources c on c.name = s.source
 order by v.subscription;

-- name: status_of_partitions
-- Partitions with work, by the index on (run, first_pos): reads no more than it returns.
select p.key, p.position, p.hold, r.backlog, r.first_pos, nullif(r.due_at, 'infinity') as due_at, r.attempts,
       r.takeovers, l.worker, l.expires_at, f.state, f.error
  from (select r.* from headrace.ready r
         where r.run = (select s.run from headrace.subscriptions s where s.name = $1)
           -- The one row of an unpartitioned subscription is there without work, too.
           and (r.backlog > 0 or r.lease is not null or r.attempts <> 0)
         order by r.first_pos limit $2) r
  join headrace.partitions p on p.id = r.part
  left join headrace.leases l on l.id = r.lease
  left join headrace.failures f on f.part = r.part
 order by r.first_pos, p.key;

-- name: status_of_workers
-- Younger than three beats of their own.
select w.name, w.app, w.version, w.lanes, w.subscriptions, w.started_at,
       extract(epoch from clock_timestamp() - w.beat_at)::float8 as beat_seconds
  from headrace.workers w where w.beat_at > clock_timestamp() - 3 * w.beat_every
 order by w.app, w.name, w.started_at;
