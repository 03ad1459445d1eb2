-- name: read_events
-- One page in one snapshot: rows while they fit by count and bytes, whether more are there, and the last row of any
-- type, on which a reader that found nothing may rest. $6 is the limit plus one.
with p as materialized (
    select x.*, row_number() over w as place, sum(x.size) over w - x.size as before
      from (select e.position, e.stream, e.version, e.type, e.data, e.metadata, e.tags, e.event_id, e.recorded_at,
                   e.appended_at, e.commit_id, {{data_size}} as size
              from {{events}} e
             where e.position > $1::bigint and e.position <= $2::bigint {{wanted}}
             order by e.position limit $6::bigint) x
    window w as (order by x.position rows unbounded preceding)),
t as (
    select (select e.position from {{events}} e where e.position > $1::bigint and e.position <= $2::bigint
             order by e.position desc limit 1) as last_row,
           (select count(*) from p) as found)
select t.last_row, t.found, k.position, k.stream, k.version, k.type, k.data::text as data,
       k.metadata::text as metadata, k.tags, k.event_id, k.recorded_at, k.appended_at, k.commit_id
  from t left join p k on k.place < $6::bigint and (k.before < $7::bigint or k.place = 1)
 order by k.position;

-- name: wanted_events
-- Which events a reader wants; a parameter that is null costs nothing, whatever plan is kept.
{{types}} {{streams}} {{tags}}

-- name: wanted_any_types
-- No condition on the type.
and $3::text[] is null

-- name: wanted_types
-- Of some types, in the order of positions.
and e.type = any ($3::text[])

-- name: wanted_few_types
-- Of few types, each found by its own part of the index on (type, position).
and e.position in (
    select f.position
      from unnest($3::text[]) w(type)
     cross join lateral (select i.position from {{events}} i
                          where i.type = w.type and i.position > $1::bigint and i.position <= $2::bigint
                          order by i.position limit $6::bigint) f
     order by f.position limit $6::bigint)

-- name: wanted_any_streams
-- No condition on the stream.
and $4::text[] is null

-- name: wanted_streams
-- Of some streams.
and e.stream = any ($4::text[])

-- name: wanted_any_tags
-- No condition on tags.
and $5::text[] is null

-- name: wanted_tags
-- With every one of these tags; the second condition is that of the partial index.
and e.tags @> $5::text[] and e.tags <> '{}'

-- name: head_position
-- The last event that is visible now.
select coalesce((select e.position from {{events}} e order by e.position desc limit 1), 0);

-- name: append_events
-- Conditions, versions and rows in one round trip.
select a.first, a.last, a.streams, a.versions
  from headrace.append_v1($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::uuid[], $7::timestamptz[],
                          $8::text[], $9::int[], $10::text[], $11::text[], $12::bigint) a;

-- name: lock_condition
-- What an append with this condition would lock: see docs/decisions/0002.
select headrace.lock_tags_v1(null, $1::text[]);

-- name: import_events
-- A chunk of an import; events that are stored already are passed over.
select headrace.import_v1($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::uuid[], $7::timestamptz[]);

-- name: json_is_storable
-- Fails on text that jsonb cannot keep; used to name the event that spoilt its batch.
select $1::text::jsonb is not null;
