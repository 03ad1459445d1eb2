-- The read model that every contender fills: the same table, and for those in Python the same statement.

-- name: create_totals
-- One row per key.
create table totals (
    stream text collate "C" primary key,
    events bigint not null,
    amount bigint not null,
    last_position bigint not null
);

-- name: add_totals
-- Folded per key by the caller: one statement may not touch a row twice.
insert into totals as t (stream, events, amount, last_position)
select u.stream, u.events, u.amount, u.last_position
  from unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[]) u(stream, events, amount, last_position)
on conflict (stream) do update set
    events = t.events + excluded.events,
    amount = t.amount + excluded.amount,
    last_position = greatest(t.last_position, excluded.last_position);

-- name: count_wrong_totals
-- How many keys differ from what one GROUP BY over the log says; a missing and a surplus row count as well.
with expected as (
    select e.stream, count(*) as events, sum((e.data ->> 'amount')::bigint) as amount, max(e.position) as last_position
      from headrace.events e group by e.stream)
select count(*) from expected x full join totals t using (stream)
 where (x.events, x.amount, x.last_position) is distinct from (t.events, t.amount, t.last_position);

-- name: forget_totals
-- Between two contenders that prepare the same database.
truncate totals;

-- name: count_events
-- Size of the log.
select count(*) from headrace.events;

-- name: last_position
-- Where a contender without an exact reader stops; the log is complete before it starts.
select coalesce(max(position), 0) from headrace.events;
