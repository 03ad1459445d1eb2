-- The failures of keys, as commands see and end them. Never part of the hot path.

-- name: failing_runs
-- Subscriptions whose failures are wanted, by name.
select s.name, s.run, s.partitioned from headrace.subscriptions s
 where $1::text[] is null or s.name = any ($1) order by s.name;

-- name: failures_page
-- A page in order of position, started after the last row of the page before: bounded memory, no long snapshot.
select f.part, p.key, f.position, e.type, e.stream, f.state, f.attempts, f.class, f.error_type, f.error,
       f.first_failed_at, f.failed_at, f.next_retry_at, coalesce(r.backlog, 0) as waiting
  from (select f.* from headrace.failures f
         where f.run = $1 and f.position > $2::bigint and ($3::text[] is null or f.state = any ($3))
         order by f.position limit $4) f
  join headrace.partitions p on p.id = f.part
  left join headrace.ready r on r.part = f.part
  left join lateral (select e.type, e.stream from {{events}} e
                      where e.position >= f.position and e.position <= f.position
                      order by e.position limit 1) e on true
 order by f.position;

-- name: failure_of_key
-- One key's failure.
select s.run, s.partitioned, f.part, p.key, f.position, e.type, e.stream, f.state, f.attempts, f.class, f.error_type,
       f.error, f.first_failed_at, f.failed_at, f.next_retry_at, coalesce(r.backlog, 0) as waiting
  from headrace.subscriptions s
  join headrace.partitions p on p.run = s.run and p.key = $2
  join headrace.failures f on f.part = p.id
  left join headrace.ready r on r.part = f.part
  left join lateral (select e.type, e.stream from {{events}} e
                      where e.position >= f.position and e.position <= f.position
                      order by e.position limit 1) e on true
 where s.name = $1;

-- name: failing_parts
-- The next keys to resume, in the order in which ready rows are locked everywhere.
select f.part from headrace.failures f
 where f.run = $1 and f.part > $2::bigint
   and ($3::text is null or f.part = (select p.id from headrace.partitions p where p.run = $1 and p.key = $3::text))
 order by f.part limit $4;

-- name: failing_lock
-- Ready rows of failing keys; what is decided about them is read in a later statement.
select r.part, r.lease, r.attempts from headrace.ready r where r.part = any ($1::bigint[]) order by r.part for update;

-- name: resume_ready
-- Due now, with a new budget: -1 says that a failure is on record and none of the budget is used.
update headrace.ready r set due_at = clock_timestamp(), attempts = -1, takeovers = 0 where r.part = any ($1::bigint[]);

-- name: resume_failures
-- The record stays until the key succeeds, so that its next failure does not count as a new one.
with b as (
    select f.part, f.run, f.position, jsonb_build_object('state', f.state, 'attempts', f.attempts, 'next_retry_at',
           f.next_retry_at, 'error_type', f.error_type) as before
      from headrace.failures f where f.part = any ($1::bigint[])),
u as (
    update headrace.failures f set state = 'backing off', next_retry_at = clock_timestamp()
      from b where f.part = b.part)
insert into headrace.audit (who, verb, subscription, key, position, why, before)
select $2, 'resume', $3, p.key, b.position, $4, b.before from b join headrace.partitions p on p.id = b.part;

-- name: failing_position
-- Where a key fails, read under the lock of its ready row.
select f.position from headrace.failures f where f.part = $1;

-- name: skip_entry
-- The ticket of the failing event; exactly one.
delete from headrace.inbox i where i.part = $1 and i.position = $2 returning i.position;

-- name: skip_last
-- That was all there was.
delete from headrace.ready r where r.part = $1 and r.backlog = 1 returning r.part;

-- name: skip_lower
-- The rest of the key is due, as if nothing had ever failed.
update headrace.ready r set
    backlog = r.backlog - 1, due_at = clock_timestamp(), attempts = 0, takeovers = 0,
    first_pos = (select i.position from headrace.inbox i where i.part = $1 order by i.position limit 1)
 where r.part = $1;

-- name: skip_in_log
-- An unpartitioned subscription has no inbox: its position moves onto the event.
update headrace.partitions p set position = $2, touched_at = clock_timestamp()
 where p.id = $1 and p.position < $2 returning p.id;

-- name: skip_log_ready
-- And its one ready row stays.
update headrace.ready r set first_pos = $2, due_at = clock_timestamp(), attempts = 0, takeovers = 0 where r.part = $1;

-- name: skip_record
-- The failure ends; counters and audit say how.
with f as (delete from headrace.failures f where f.part = $1 returning f.*),
c as (
    insert into headrace.counters as c (run, slot, drained, skipped) select f.run, 0, $2, 1 from f
    on conflict (run, slot) do update set drained = c.drained + excluded.drained, skipped = c.skipped + 1)
insert into headrace.audit (who, verb, subscription, key, position, why, before)
select $3, 'skip', $4, p.key, f.position, $5, to_jsonb(f) from f join headrace.partitions p on p.id = f.part;
