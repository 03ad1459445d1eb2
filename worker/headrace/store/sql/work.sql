-- Claim, load, flush: the lanes' statements. Everything that writes is a function of the migration; what is here
-- reads, or names the function.

-- name: due_runs
-- One probe of the due index per run, whatever waits.
select d.run, d.status, d.epoch, d.due, d.due_in from headrace.due_v1($1::int[]) d;

-- name: claim
-- Due partitions under a new lease.
select c.part, c.backlog, c.attempts, c.takeovers
  from headrace.claim_v1($1, $2, $3, $4, $5, $6, $7, $8, $9::interval) c order by c.part;

-- name: claim_log
-- The one partition of an unpartitioned run, when a row lies above its position. Status and boot target only spare
-- a claim that the load would send back; the load looks again, after the claim has committed.
with c as materialized (
    select r.part, r.backlog, r.attempts, r.takeovers
      from headrace.ready r
     where r.run = $1 and r.lease is null and r.due_at <= statement_timestamp()
       and (select e.position from {{events}} e
             where e.position > (select p.position from headrace.partitions p where p.id = r.part)
             order by e.position limit 1)
           <= (select case s.status when 'active' then $7::bigint
                                    when 'booting' then least($7::bigint, k.boot_target) end
                 from headrace.subscriptions s join headrace.cursors k on k.run = s.run where s.run = $1)
     order by r.due_at limit 1 for update of r skip locked),
l as (
    insert into headrace.leases (id, run, owner, worker, parts, events, expires_at)
    select $2, $1, $3, $4, 1, $5, clock_timestamp() + $6::interval where exists (select from c))
update headrace.ready r set lease = $2
 where r.part = any (array(select c.part from c))
returning r.part, r.backlog, greatest(r.attempts, 0) as attempts, r.takeovers;

-- name: load
-- Exactly the inboxed events of a group, in one pass of index probes: partition by id, entries from the lowest
-- position, event by position. Each `limit` keeps a probe from becoming a join, whatever the statistics say; the row
-- comparison does the same for the order of the inbox. Status and the declaration in charge are looked at here, after the
-- claim has committed and in the snapshot that reads the inbox.
with g as materialized (
    select s.name, s.status in ('booting', 'active') and ($6::text is null or s.declared = $6) as running
      from headrace.subscriptions s where s.run = $1),
p as materialized (
    select p.id, p.key, p.position, p.hold
      from unnest($2::bigint[]) u(part)
     cross join lateral (select p.id, p.key, p.position, p.hold from headrace.partitions p
                          where p.id = u.part limit 1) p
     where (select g.running from g)),
x as (
    select p.id as part, p.key, p.position as reached, i.position as inboxed
      from (select * from p where p.hold is null order by p.id) p
     cross join lateral (select i.position from headrace.inbox i
                          where (i.part, i.position) > (p.id, 0::bigint) and i.part <= p.id
                          order by i.part, i.position limit $3::bigint) i
     order by p.id, i.position limit $4::bigint),
e as (
    select x.*, e.*, sum(pg_column_size(e.data)) over w - pg_column_size(e.data) as stored
      from x
      left join lateral (select e.position as found, e.stream, e.version, e.type, e.data, e.metadata, e.tags,
                                e.event_id, e.recorded_at, e.appended_at, e.commit_id
                           from {{events}} e where e.position >= x.inboxed and e.position <= x.inboxed
                          order by e.position limit 1) e on true
    window w as (order by x.part, x.inboxed rows unbounded preceding)),
f as (
    select e.*, sum(coalesce({{data_size}}, 0)) over w as total, row_number() over w as place
      from e where coalesce(e.stored, 0) < $5::bigint
    window w as (order by e.part, e.inboxed rows unbounded preceding))
select g.name, g.running, h.held, f.part, f.key, f.reached, f.inboxed, f.found is null as vanished,
       f.found::bigint as position, f.stream, f.version, f.type, f.data::text as data, f.metadata::text as metadata,
       f.tags, f.event_id, f.recorded_at, f.appended_at, f.commit_id
  from g
 cross join (select array_agg(p.id order by p.id) as held from p where p.hold is not null) h
  left join f on f.total <= $5::bigint or f.place = 1;

-- name: load_log_head
-- Where an unpartitioned run stands; its events are read by the next statement, from there, in the same snapshot: none
-- that came after another declaration had taken charge.
select s.name, s.status, k.boot_target, p.key, p.position, p.hold, {{ordered_reading}} as guard
  from headrace.subscriptions s join headrace.cursors k on k.run = s.run join headrace.partitions p on p.id = $2
 where s.run = $1 and ($3::text is null or s.declared = $3);

-- name: fence
-- First statement of a work transaction: the lease row is there and stays; an idle owner is ended by the server.
select headrace.fence_v1($1, $2, $3);

-- name: fence_stands
-- Whether this is still the transaction that was fenced: a script may have ended it.
select coalesce(current_setting('headrace_fence.lease', true), '') = $1;

-- name: flush
-- Positions, inbox, ready rows, counters, lease.
select f.drained, f.status, f.epoch, f.streak
  from headrace.flush_v1($1, $2, $3, $4, $5::bigint[], $6::bigint[], $7::int[], $8::bigint[], $9::bigint[], $10, $11,
                         $12, $13) f;

-- name: flush_log
-- The same for an unpartitioned subscription.
select f.drained, f.status, f.epoch, f.streak
  from headrace.flush_log_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) f;

-- name: fail
-- A key failed: due later, one failures row.
select headrace.fail_v1($1, $2, $3, $4, $5, $6, $7::interval, $8, $9, $10, $11, $12);

-- name: slow
-- A key waits without having failed.
select headrace.slow_v1($1, $2, $3, $4::interval);

-- name: suspect
-- A key that owners died with is about to be handled.
select headrace.suspect_v1($1, $2, $3);

-- name: absolve
-- Its owner lives, and has not done it.
select headrace.absolve_v1($1, $2, $3);

-- name: hold
-- Held keys leave the group.
select headrace.hold_v1($1, $2, $3::bigint[]);

-- name: release
-- Leases go back.
select headrace.release_v1($1::bigint[], $2);

-- name: renew
-- Leases live on.
select r from headrace.renew_v1($1::bigint[], $2, $3::interval) r;

-- name: take_over
-- Leases of the dead.
select t.lease, t.run, t.worker, t.parts from headrace.take_over_v2() t;
