-- Routing: cursor row lock, then one statement that moves a batch into the inboxes. The lock must be a statement of
-- its own: only a later snapshot is sure to see what the last holder of the row has stored.

-- name: route_lock
-- The router's exclusion and fence; no row when somebody else routes, or a command has stopped all routing.
select c.position, c.boot_target, {{ordered_reading}} as guard
  from headrace.cursors c where c.run = $1 for no key update skip locked;

-- name: unrouted_head
-- Where a partitioner in Python reads on; takes no lock, the batch is thrown away when the cursor has moved.
select c.position, c.boot_target, s.status, {{ordered_reading}} as guard
  from headrace.cursors c join headrace.subscriptions s on s.run = c.run
 where c.run = $1 and ($2::text is null or s.declared = $2);

-- name: upto_running
-- Null unless the subscription runs, so that nothing is read; while booting the target is the line.
(select s.upto from s)

-- name: batch_in_store
-- Head of a route whose keys the server makes: s what may be routed, w the batch, v where the cursor goes. $4 is the
-- limit plus one: the one beyond tells that more is left. Nothing for another declaration than the one in charge ($11):
-- it would pass over what only that one wants.
s as materialized (
    select case s.status when 'active' then $3::bigint when 'booting' then least($3::bigint, $9::bigint) end as upto
      from headrace.subscriptions s where s.run = $1 and ($11::text is null or s.declared = $11)),
x as materialized (
    select e.position::bigint as position, e.type, ({{key}}) collate "C" as key,
           row_number() over (order by e.position rows unbounded preceding) as place
      from ({{batch}}) e where (select s.upto from s) is not null),
w as (select x.position, x.type, x.key from x where x.place < $4::bigint),
bad as materialized (
    select w.position, w.type, octet_length(w.key) as bytes from w
     where octet_length(w.key) > $10::int order by w.position limit 1),
n as materialized (select count(*) as found, max(x.position) filter (where x.place < $4::bigint) as last from x),
z as materialized (select {{stop}}::bigint as stop from n where n.found < $4::bigint),
v as materialized (
    select case
           when exists (select from bad) then
               coalesce((select e.position from {{events}} e
                          where e.position > $2::bigint and e.position < (select bad.position from bad)
                          order by e.position desc limit 1), $2::bigint)
           when n.found >= $4::bigint then n.last
           else coalesce((select z.stop from z), {{last_row}}, $2::bigint) end as last,
           n.found < $4::bigint and not exists (select from bad)
               and not exists (select from z where z.stop is not null) as complete
      from n where (select s.upto from s) is not null)

-- name: batch_given
-- The same for keys that were made in Python: the pairs are given, and so is where the cursor goes.
s as materialized (
    select case when s.status in ('booting', 'active') then $2::bigint end as upto
      from headrace.subscriptions s where s.run = $1 and ($6::text is null or s.declared = $6)),
w as materialized (
    select g.position, null::text as type, g.key collate "C" as key
      from unnest($3::bigint[], $4::text[]) g(position, key) where (select s.upto from s) is not null),
bad as materialized (select null::bigint as position, null::text as type, null::int as bytes where false),
v as materialized (select $5::bigint as last, true as complete where (select s.upto from s) is not null)

-- name: route
-- Keys to partitions, events to inboxes, ready rows raised in id order, cursor moved: all or nothing. No join that a
-- wrong estimate could turn round: what is missing is looked up key by key and put together by grouping.
with {{batch}},
k as materialized (
    select w.key, count(*)::int as events, min(w.position) as first,
           array_agg(w.position order by w.position) as positions
      from w where w.key is not null and w.position < coalesce((select bad.position from bad), 9223372036854775807)
     group by w.key),
f as materialized (
    select k.key, k.events, k.first, k.positions, p.id
      from k left join lateral (select p.id from headrace.partitions p
                                 where p.run = $1 and p.key = k.key limit 1) p on true),
new as (
    insert into headrace.partitions (run, key) select $1, f.key from f where f.id is null order by f.key
    on conflict (run, key) do nothing returning id, key),
a as materialized (
    select max(u.id) as id, max(u.events) as events, max(u.first) as first, max(u.positions) as positions
      from (select f.key, f.id, f.events, f.first, f.positions from f
            union all select new.key, new.id, null, null, null from new) u
     group by u.key),
i as (
    insert into headrace.inbox (part, position) select a.id, unnest(a.positions) from a where a.id is not null
    returning 1),
r as (
    -- Only the backlog: due time, lease and attempts of a key are nobody's business here, not even of a held one.
    insert into headrace.ready (part, run, backlog, first_pos, due_at)
    select a.id, $1, a.events, a.first, clock_timestamp() from a where a.id is not null order by a.id
    on conflict (part) do update set backlog = ready.backlog + excluded.backlog
    returning (xmax = 0) as fresh),
m as materialized (
    select (select count(*) from i) as routed, (select count(*) from r where r.fresh) as activated,
           (select count(*) from new) as created),
c as (
    update headrace.cursors c set position = greatest(v.last, c.position), routed = c.routed + m.routed,
           activated = c.activated + m.activated, created = c.created + m.created
      from v, m where c.run = $1 and v.last > c.position
    returning c.position)
select (select s.upto from s) is not null as running, (select c.position from c) as position,
       coalesce((select v.complete from v), false) as complete, m.routed, m.activated, m.created,
       (select coalesce(sum(k.events), 0) from k) as wanted,
       b.position as bad_position, b.type as bad_type, b.bytes as bad_bytes,
       (select headrace.touch_v1($1, array_agg(a.id)) from a) as touched
  from m left join bad b on true;

-- name: pass_over_lock
-- A person passes an event over: whoever routes now is waited for.
select c.position, {{ordered_reading}} as guard from headrace.cursors c where c.run = $1 for no key update;

-- name: pass_over
-- Only the very next wanted event, by what the subscription has declared.
update headrace.cursors c set position = $3::bigint
 where c.run = $1 and c.position = $2::bigint and $3::bigint > $2::bigint
   and $3::bigint = (
       select e.position from {{events}} e
        where e.position > $2::bigint and e.position <= $3::bigint
          and coalesce(e.type = any ((select s.wanted_types from headrace.subscriptions s
                                       where s.run = $1)::text[]), true)
          and coalesce(e.stream = any ((select s.wanted_streams from headrace.subscriptions s
                                         where s.run = $1)::text[]), true)
          and coalesce(e.tags @> (select s.wanted_tags from headrace.subscriptions s where s.run = $1), true)
        order by e.position limit 1)
returning c.position;

-- name: sweep
-- Idle removal of one slice, under the cursor row lock.
select headrace.sweep_v1($1, $2::interval, $3);
