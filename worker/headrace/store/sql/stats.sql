-- Statistics for people, scaling and metrics.

-- name: stats
-- All subscriptions, or those of some names.
select s.subscription, s.app, s.group_name, s.status, s.status_reason, s.position, s.head, s.horizon_held_seconds,
       s.unrouted, s.held, s.inboxed, s.waiting, s.in_flight, s.oldest_seconds, s.pending_partitions,
       s.touched_partitions, s.largest_partition, s.parked, s.next_due_at, s.arrivals_total, s.processed_total,
       s.busy_seconds_total, s.workers, s.capacity, s.sampled_at
  from headrace.stats_of_v1($1::text[]) s;

-- name: source_save
-- Tells statistics how to count in somebody else's event table; writes nothing when it is known.
insert into headrace.sources as o (name, relation, sequence, exact, events_sql)
select $1::text, $2::text, $3::text, $4::boolean, $5::text
 where not exists (select from headrace.sources o where (o.name, o.relation, o.sequence, o.exact, o.events_sql)
                                                       is not distinct from ($1, $2, $3, $4, $5))
on conflict (name) do update set
    relation = excluded.relation, sequence = excluded.sequence, exact = excluded.exact,
    events_sql = excluded.events_sql;
