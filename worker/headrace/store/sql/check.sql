-- The invariants of the protocol, numbered as in the architecture page; each returns a sentence per finding, in one
-- snapshot. These read whole tables: for tests, and for whoever doubts.

-- name: check_backlog
-- I1: as many inbox rows as the ready row says, and no ready row without any; a whole log has one and no inbox.
select format('I1: partition %s has %s inbox entries, its ready row says %s', coalesce(r.part, i.part),
              coalesce(i.entries, 0), coalesce(r.backlog::text, 'nothing: it is not there')) as finding
  from headrace.ready r
  full join (select i.part, count(*) as entries from headrace.inbox i group by i.part) i on i.part = r.part
  left join headrace.subscriptions s on s.run = r.run
 where coalesce(r.backlog, -1) <> coalesce(i.entries, 0) or (r.backlog = 0 and s.partitioned is not false)
 order by 1;

-- name: check_first_position
-- I2: where a partition starts is its lowest inbox position.
select format('I2: partition %s starts at %s, its inbox at %s', r.part, r.first_pos, i.lowest) as finding
  from headrace.ready r
  join (select i.part, min(i.position) as lowest from headrace.inbox i group by i.part) i on i.part = r.part
 where r.first_pos <> i.lowest order by 1;

-- name: check_leases_exist
-- I3: a leased partition names a lease that is there.
select format('I3: partition %s has lease %s, which is not there', r.part, r.lease) as finding
  from headrace.ready r
 where r.lease is not null and not exists (select from headrace.leases l where l.id = r.lease) order by 1;

-- name: check_orphans
-- I4: whatever belongs to a partition belongs to one that is there.
select format('I4: %s has rows of partition %s, which is not there', x.name, x.part) as finding
  from (select distinct 'inbox' as name, i.part from headrace.inbox i
        union all select 'ready', r.part from headrace.ready r
        union all select 'failures', f.part from headrace.failures f) x
 where not exists (select from headrace.partitions p where p.id = x.part) order by 1;

-- name: check_positions
-- I5: nothing waits at or below the position of its partition.
select format('I5: partition %s is at %s, its inbox starts at %s', p.id, p.position, r.first_pos) as finding
  from headrace.partitions p
  join headrace.ready r on r.part = p.id
  join headrace.subscriptions s on s.run = p.run
 where s.partitioned and p.position >= r.first_pos order by 1;

-- name: check_counters
-- I6: what was counted when rows moved is what is there.
select format('I6: run %s: routed %s - handled %s - skipped %s is not the %s inbox entries; or activated %s - '
              'drained %s is not the %s ready rows', c.run, c.routed, n.handled, n.skipped, i.entries, c.activated,
              n.drained, r.rows) as finding
  from headrace.cursors c
  join headrace.subscriptions s on s.run = c.run and s.partitioned
 cross join lateral (select coalesce(sum(n.handled), 0) as handled, coalesce(sum(n.skipped), 0) as skipped,
                            coalesce(sum(n.drained), 0) as drained
                       from headrace.counters n where n.run = c.run) n
 cross join lateral (select count(*) as entries
                       from headrace.inbox i join headrace.partitions p on p.id = i.part where p.run = c.run) i
 cross join lateral (select count(*) as rows from headrace.ready r where r.run = c.run) r
 where c.routed - n.handled - n.skipped <> i.entries or c.activated - n.drained <> r.rows order by 1;

-- name: check_attempts
-- I7: a key has attempts (or a budget begun anew) if and only if a failure of it is on record.
select format('I7: partition %s has %s attempts and %s failure on record', coalesce(r.part, f.part),
              coalesce(r.attempts::text, 'no ready row, so no'), case when f.part is null then 'no' else 'a' end)
       as finding
  from headrace.ready r
  full join headrace.failures f on f.part = r.part
 where (coalesce(r.attempts, 0) <> 0) <> (f.part is not null) order by 1;

-- name: check_expiry
-- I8: no lease lasts longer than any time to live that makes sense.
select format('I8: lease %s of %s expires at %s, further away than %s', l.id, l.worker, l.expires_at, $1::interval)
       as finding
  from headrace.leases l where l.expires_at > clock_timestamp() + $1::interval order by 1;

-- name: check_cursors
-- I9: a cursor rests on an event row, or below all of them where old events were removed.
select format('I9: the cursor of run %s is at %s, where no event is', c.run, c.position) as finding
  from headrace.cursors c
  join headrace.subscriptions s on s.run = c.run and s.source is null
 where c.position > 0
   and not exists (select from headrace.events e where e.position = c.position)
   and exists (select from headrace.events e where e.position < c.position) order by 1;

-- name: check_forever
-- I10: never due means held, or waiting for a person.
select format('I10: partition %s is never due, neither held nor waiting for a person', r.part) as finding
  from headrace.ready r
  join headrace.partitions p on p.id = r.part
 where r.due_at = 'infinity' and p.hold is null
   and not exists (select from headrace.failures f where f.part = r.part and f.next_retry_at is null) order by 1;
