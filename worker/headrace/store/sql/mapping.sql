-- name: mapping_relation
-- What the table is: its oid and kind, null when there is none; and whether this role may read it.
select c.oid::bigint as relation, c.relkind::text as kind, has_table_privilege(c.oid, 'select') as readable
  from pg_class c join pg_namespace n on n.oid = c.relnamespace
 where n.nspname = $1 and c.relname = $2 and c.relkind in ('r', 'p', 'v', 'm', 'f');

-- name: mapping_columns
-- Columns with the type below any domain, and whether the column is never null.
select a.attname as name, a.attnum as number, a.attnotnull as required,
       (case when t.typtype = 'd' then t.typbasetype else t.oid end)::regtype::text as type
  from pg_attribute a join pg_type t on t.oid = a.atttypid
 where a.attrelid = $1::bigint::oid and a.attnum > 0 and not a.attisdropped;

-- name: mapping_indexes
-- Usable b-tree indexes with their leading columns, by name.
select i.indisunique as is_unique, i.indnkeyatts as width,
       array(select a.attname::text from unnest(i.indkey::int2[]) with ordinality k(number, place)
               join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.number
              where k.place <= i.indnkeyatts order by k.place) as columns
  from pg_index i join pg_class c on c.oid = i.indexrelid join pg_am m on m.oid = c.relam
 where i.indrelid = $1::bigint::oid and i.indisvalid and i.indpred is null and m.amname = 'btree';

-- name: mapping_sequence_owned
-- The sequence that a serial or identity column owns, as a quoted name.
select pg_get_serial_sequence($1, $2);

-- name: mapping_sequence
-- Facts of a sequence that exact reading depends on.
select c.oid::bigint as sequence, s.seqcache as cache, s.seqincrement as step, s.seqcycle as cycles,
       has_sequence_privilege(c.oid, 'select') or has_sequence_privilege(c.oid, 'usage') as readable
  from pg_class c join pg_sequence s on s.seqrelid = c.oid
 where c.oid = to_regclass($1);

-- name: mapped_events
-- Somebody else's table under our column names; the planner pulls it up, so position stays indexable.
(select {{position}} as position, {{stream}} as stream, {{version}} as version, {{type}} as type, {{data}} as data,
        {{metadata}} as metadata, {{tags}} as tags, {{event_id}} as event_id, {{recorded_at}} as recorded_at,
        {{appended_at}} as appended_at, {{commit_id}} as commit_id
   from {{relation}})

-- name: mapped_as_is
-- A column that has our type already.
{{column}}

-- name: mapped_text
-- Any column as text; no null, since stream and type must be there.
coalesce({{column}}::text, '')

-- name: mapped_json
-- jsonb, json and text as JSON text: the server never parses what it may refuse.
coalesce({{column}}::text, 'null')

-- name: mapped_bytes
-- JSON text in bytes; bytes that are no text come as their hex form, which no handler can decode.
coalesce(headrace.text_of_v1({{column}}), 'null')

-- name: mapped_encoded
-- Bytes for a decoder in Python; what stands for null is no base64.
coalesce(encode({{column}}, 'base64'), '-')

-- name: mapped_int
-- A version of another width.
{{column}}::int

-- name: mapped_local_time
-- A time without zone counts as UTC.
{{column}}::timestamp at time zone 'UTC'

-- name: mapped_no_version
-- The table has no versions.
0

-- name: mapped_no_json
-- The table has no metadata.
'{}'::text

-- name: mapped_no_tags
-- The table has no tags.
'{}'::text[]

-- name: mapped_tags
-- Tags are never null; the cast costs nothing where the column is text[] already.
coalesce({{column}}::text[], '{}')

-- name: mapped_no_id
-- The table has no event ids.
null::uuid

-- name: mapped_no_time
-- The table has no such time.
null::timestamptz

-- name: mapped_no_commit
-- The table does not say what was appended together.
null::xid8

-- name: own_table
-- Our own table needs no translation.
headrace.events

-- name: data_size
-- About how many bytes a row's data is on the wire; only what is compressed is looked into.
case when pg_column_compression(e.data) is null then pg_column_size(e.data) else octet_length(e.data::text) end

-- name: source_save
-- Tells statistics how to count in somebody else's event table; writes nothing when it is known.
insert into headrace.sources as o (name, relation, sequence, exact, events_sql, notes)
select $1::text, $2::text, $3::text, $4::boolean, $5::text, $6::text[]
 where not exists (select from headrace.sources o where (o.name, o.relation, o.sequence, o.exact, o.events_sql, o.notes)
                                                       is not distinct from ($1, $2, $3, $4, $5, $6))
on conflict (name) do update set
    relation = excluded.relation, sequence = excluded.sequence, exact = excluded.exact,
    events_sql = excluded.events_sql, notes = excluded.notes;

-- name: sources_of
-- The event tables of some subscriptions as workers have stored them; nulls for what is not there any more.
select s.name, s.source, n.nspname::text as table_schema, c.relname::text as table_name, o.exact, o.events_sql,
       c.oid::bigint as relation, q.seqrelid::bigint as sequence, o.sequence as sequence_name, q.seqcache as cache,
       q.seqincrement as step
  from headrace.subscriptions s
  left join headrace.sources o on o.name = s.source
  left join pg_class c on c.oid = to_regclass(o.relation)
  left join pg_namespace n on n.oid = c.relnamespace
  left join pg_sequence q on q.seqrelid = to_regclass(o.sequence)
 where s.name = any ($1::text[]);
