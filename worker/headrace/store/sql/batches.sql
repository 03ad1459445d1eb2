-- The next wanted events of a log, as a relation of full event rows in position order. Parameters are the same
-- wherever these are used: $2 the position before, $4 the limit, $5 types, $6 streams, $7 tags (null: all), $8 the
-- number of rows that one statement looks at. `upto` is an expression; it and $2 are never joined, only compared.

-- name: ordered_reading
-- Part of the first statement of a transaction that reads in order: with statistics that are stale or missing the
-- planner would sort the whole range, and a plan kept from when a table was empty would scan all of it.
set_config('enable_seqscan', 'off', true) || set_config('enable_bitmapscan', 'off', true)
    || set_config('enable_sort', 'off', true) || set_config('enable_incremental_sort', 'off', true)
    || set_config('jit', 'off', true)

-- name: begin_guarded
-- The same for a transaction whose first statement says nothing else; one round trip.
begin isolation level read committed;
set local enable_seqscan = off; set local enable_bitmapscan = off; set local enable_sort = off;
set local enable_incremental_sort = off; set local jit = off;

-- name: guard
-- The same inside a transaction that is open.
set local enable_seqscan = off; set local enable_bitmapscan = off; set local enable_sort = off;
set local enable_incremental_sort = off; set local jit = off;

-- name: commit_guarded
-- Its end.
commit;

-- name: rollback
-- Its end, and that of any other, when nobody knows how far it came.
rollback;

-- name: upto_horizon
-- Reading that was told its line.
$3::bigint

-- name: batch_scan
-- All types, or many: by primary key, over a bounded stretch of rows, so that no batch is ever a long statement.
select e.*
  from (select * from {{events}} e
         where e.position > $2::bigint and e.position <= {{upto}}
         order by e.position limit $8::bigint) e
 where ($5::text[] is null or e.type = any ($5)) and ($6::text[] is null or e.stream = any ($6))
   and ($7::text[] is null or e.tags @> $7)
 order by e.position limit $4::bigint

-- name: batch_by_type
-- Few types: rows of other types are never read. The row comparisons leave the planner no other index, and the
-- order by both columns no other order; what the filter of streams and tags would be is part of the other form.
select e.*
  from (select x.position
          from unnest($5::text[]) t(type)
         cross join lateral (select e.position from {{events}} e
                              where (e.type, e.position) > (t.type, $2::bigint)
                                and (e.type, e.position) <= (t.type, {{upto}})
                              order by e.type, e.position limit $4::bigint) x
         where $6::text[] is null and $7::text[] is null and $8::bigint is not null
         order by x.position limit $4::bigint) x
 cross join lateral (select * from {{events}} e where e.position >= x.position and e.position <= x.position
                       order by e.position limit 1) e
 order by x.position

-- name: stop_scan
-- The last row that a short batch looked at, when more rows follow; null when it has seen them all.
(select e.position from {{events}} e where e.position > $2::bigint and e.position <= {{upto}}
  order by e.position offset greatest($8::bigint, 1) - 1 limit 1)

-- name: stop_by_type
-- A short batch by type has seen everything.
null::bigint

-- name: last_row
-- The last event row of any type: where a reader that found nothing rests. Never the line itself, which a crash can
-- take back.
(select e.position from {{events}} e where e.position > $2::bigint and e.position <= {{upto}}
  order by e.position desc limit 1)

-- name: read_batch
-- A batch with its data, cut by bytes; the first event always fits. What is stored is cut before what it unfolds to.
-- $4 is the limit plus one: the one beyond tells that more is left.
with a as (
    select e.*, {{data_size}} as size
      from (select e.*, sum(pg_column_size(e.data)) over w - pg_column_size(e.data) as stored,
                   lead(e.position) over w as following,
                   row_number() over w as place
              from ({{batch}}) e
            window w as (order by e.position rows unbounded preceding)) e
     where e.stored < $9::bigint),
b as materialized (
    select a.*, a.place < $4::bigint and sum(a.size) over w - a.size < $9::bigint as fits
      from a window w as (order by a.position rows unbounded preceding)),
n as materialized (
    select max(b.position) filter (where b.fits) as last,
           coalesce(bool_or(not b.fits) or max(b.following) > max(b.position), false) as cut
      from b),
z as materialized (select {{stop}}::bigint as stop from n where not n.cut),
v as materialized (
    select case when n.cut then n.last else coalesce((select z.stop from z), {{last_row}}, $2::bigint) end as last,
           not n.cut and not exists (select from z where z.stop is not null) as complete
      from n)
select v.last::bigint as last_row, v.complete, e.position::bigint as position, e.stream, e.version, e.type,
       e.data::text as data, e.metadata::text as metadata, e.tags, e.event_id, e.recorded_at, e.appended_at, e.commit_id
  from v left join b e on e.fits
 where $1::int is not null and $3::bigint is not null;
