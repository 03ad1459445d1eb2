-- The straight-line script: the fewest statements that do the whole job with every guard of the protocol. Fence and row
-- locks, exact deletes with counts, the backlog as the guard against a lost wake-up, one lease per group. What it
-- leaves out is what a product has besides: statuses, holds, failures, counters, several subscriptions, a horizon.

-- name: create_schema
-- Tables and the flush.
create schema straight;

create table straight.cursors (run int primary key, position bigint not null default 0) with (fillfactor = 50);
insert into straight.cursors (run) values (1);

create table straight.partitions (
    id bigint generated always as identity primary key,
    run int not null,
    key text collate "C" not null,
    position bigint not null default 0,
    unique (run, key)
) with (fillfactor = 85);

create table straight.inbox (
    part bigint,
    position bigint,
    primary key (part, position)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

create table straight.ready (
    part bigint primary key,
    run int not null,
    backlog int not null,
    first_pos bigint not null,
    due_at timestamptz not null,
    lease bigint
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
create index on straight.ready (run, due_at) where lease is null;
create index on straight.ready (lease) where lease is not null;
create index on straight.ready (run, first_pos);

create table straight.leases (id bigint primary key, run int not null, expires_at timestamptz not null);

create function straight.flush(
    p_lease bigint, p_parts bigint[], p_counts int[], p_last bigint[], p_inbox_parts bigint[], p_positions bigint[]
) returns void language plpgsql as $$
declare
    n int;
begin
    update straight.partitions p set position = u.last
      from unnest(p_parts, p_last) u(part, last) where p.id = u.part and p.position < u.last;
    get diagnostics n = row_count;
    if n <> cardinality(p_parts) then
        raise exception 'a position would not rise';
    end if;
    delete from straight.inbox i using unnest(p_inbox_parts, p_positions) u(part, position)
     where i.part = u.part and i.position = u.position;
    get diagnostics n = row_count;
    if n <> cardinality(p_positions) then
        raise exception 'an inbox entry is gone';
    end if;
    select count(*) into n
      from (select r.part from straight.ready r where r.lease = p_lease order by r.part for update) x;
    if n < cardinality(p_parts) then
        raise exception 'a ready row is gone';
    end if;
    delete from straight.ready r using unnest(p_parts, p_counts) u(part, n) where r.part = u.part and r.backlog = u.n;
    get diagnostics n = row_count;
    if n < cardinality(p_parts) then
        update straight.ready r set backlog = r.backlog - u.n, lease = null, due_at = clock_timestamp(), first_pos = (
                   select i.position from straight.inbox i
                    where i.part = r.part and i.position > u.last order by i.position limit 1)
          from unnest(p_parts, p_counts, p_last) u(part, n, last) where r.part = u.part;
    end if;
    delete from straight.leases l where l.id = p_lease;
end $$;

-- name: route_lock
-- The router's exclusion; a statement of its own, so that the next one sees what the last holder stored.
select c.position from straight.cursors c where c.run = $1 for no key update;

-- name: route
-- A batch of events into inboxes; tells how many it saw and how many it stored.
with b as materialized (
    select e.position, e.stream as key from headrace.events e
     where e.position > $2 and e.position <= $3 order by e.position limit $4),
k as materialized (select b.key, count(*)::int as events, min(b.position) as first from b group by b.key),
f as materialized (
    select k.key, k.events, k.first, p.id
      from k left join straight.partitions p on p.run = $1 and p.key = k.key),
new as (
    insert into straight.partitions (run, key) select $1, f.key from f where f.id is null order by f.key
    on conflict (run, key) do nothing returning id, key),
a as materialized (
    select f.id, f.key, f.events, f.first from f where f.id is not null
    union all
    select new.id, f.key, f.events, f.first from new join f using (key)),
i as (insert into straight.inbox select a.id, b.position from b join a using (key) returning 1),
r as (
    insert into straight.ready (part, run, backlog, first_pos, due_at)
    select a.id, $1, a.events, a.first, clock_timestamp() from a order by a.id
    on conflict (part) do update set backlog = ready.backlog + excluded.backlog),
m as materialized (select max(b.position) as last, count(*) as events from b),
c as (update straight.cursors set position = m.last from m where run = $1 and m.last is not null)
select m.events, (select count(*) from i) as stored from m;

-- name: claim
-- A group under a new lease; its loss in a crash would harm nobody, so its commit waits for no disk.
with s as materialized (select set_config('synchronous_commit', 'off', true) as setting),
c as materialized (
    select r.part, r.backlog, r.due_at from straight.ready r
     where r.run = $1 and r.lease is null and r.due_at <= statement_timestamp()
     order by r.due_at limit $3 for update skip locked),
g as materialized (
    select x.part from (
        select c.part, sum(c.backlog) over (order by c.due_at, c.part) - c.backlog as before from c) x
     where x.before < $4),
l as (
    insert into straight.leases select $2, $1, clock_timestamp() + interval '15 s' where exists (select from g))
update straight.ready r set lease = $2 from g, s where r.part = g.part and s.setting = 'off'
returning r.part;

-- name: load
-- Exactly the inboxed events of the group.
select u.part, x.position, e.stream, e.data::text as data
  from unnest($1::bigint[]) u(part)
 cross join lateral (
    select i.position from straight.inbox i where i.part = u.part order by i.position limit $2) x
  join headrace.events e on e.position = x.position
 order by u.part, x.position;

-- name: fence
-- First in the group's transaction: the lease is still ours, and nobody takes it over before the commit.
select l.id from straight.leases l where l.id = $1 for key share;

-- name: flush
-- Positions, inbox, ready rows, lease.
select straight.flush($1, $2, $3, $4, $5, $6);

-- name: count_left
-- What must be empty at the end.
select (select count(*) from straight.inbox) + (select count(*) from straight.ready)
     + (select count(*) from straight.leases);
