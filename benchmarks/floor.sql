-- Floor F2: the same job inside PostgreSQL, by four statements in one transaction and without guards. Nothing that
-- runs in another process can be as fast; it says what the machine can do at that moment.

-- name: create_schema
-- Its own tables.
create schema floor;
create table floor.partitions (
    id bigint generated always as identity primary key,
    key text collate "C" not null unique,
    position bigint not null default 0
) with (fillfactor = 85);
create table floor.inbox (part bigint, position bigint, primary key (part, position));
create table floor.cursors (position bigint not null);
insert into floor.cursors values (0);

-- name: route
-- Partitions and inbox of the whole log.
with b as materialized (
    select e.position, e.stream from headrace.events e where e.position > (select c.position from floor.cursors c)),
k as materialized (select distinct b.stream from b),
n as (
    insert into floor.partitions (key) select k.stream from k on conflict (key) do nothing returning id, key),
a as materialized (
    select n.id, n.key from n union all select p.id, p.key from k join floor.partitions p on p.key = k.stream),
c as (update floor.cursors set position = m.last from (select max(b.position) as last from b) m)
insert into floor.inbox select a.id, b.position from b join a on a.key = b.stream;

-- name: project
-- The read model by one aggregate.
insert into totals as t
select p.key, count(*), sum((e.data ->> 'amount')::bigint), max(e.position)
  from floor.inbox i join headrace.events e on e.position = i.position join floor.partitions p on p.id = i.part
 group by p.key
on conflict (stream) do update set
    events = t.events + excluded.events,
    amount = t.amount + excluded.amount,
    last_position = greatest(t.last_position, excluded.last_position);

-- name: move
-- Positions.
update floor.partitions p set position = m.last
  from (select i.part, max(i.position) as last from floor.inbox i group by i.part) m where p.id = m.part;

-- name: clear
-- The inbox.
delete from floor.inbox;

-- name: count_left
-- What must be empty at the end.
select count(*) from floor.inbox;
