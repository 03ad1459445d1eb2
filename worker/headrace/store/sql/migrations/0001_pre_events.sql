-- The event store: one table that any client may write with plain INSERT or COPY, and the functions beside it.
-- An append pays nothing for being read: no trigger, no notification, no lock beyond those of the insert itself.

-- cache 1: the exact reader relies on positions being drawn in the transaction that inserts them.
create table headrace.events (
    position bigint generated always as identity (cache 1) primary key,
    stream text collate "C" not null,
    version int not null check (version > 0),
    type text collate "C" not null,
    data jsonb not null,
    metadata jsonb not null default '{}',
    tags text[] not null default '{}',
    event_id uuid not null default gen_random_uuid(),
    recorded_at timestamptz not null default clock_timestamp(),
    appended_at timestamptz not null default clock_timestamp(),
    commit_id xid8 not null default pg_current_xact_id(),
    constraint events_stream_version unique (stream, version),
    constraint events_event_id unique (event_id)
);

-- Wake-up probes, counts and routing of a rare type never read the events of other types.
create index events_type on headrace.events (type, position);
-- Most logs carry no tags at all; those pay nothing for this. Without a pending list, which every look would read whole.
create index events_tags on headrace.events using gin (tags) with (fastupdate = off) where tags <> '{}';

-- Appends events to one or more streams, in the order given; all or nothing.
--
-- One element per event: p_streams, p_types, p_data (JSON text). The other arrays of events are null, or have one
-- element per event, null for the default; p_tags holds array literals ('{"a","b"}').
-- p_expected_streams and p_expected: the version each of these streams must be at (0: it must not exist).
-- Condition: no event that carries all p_condition_tags, and is of p_condition_types unless null, lies after
-- p_condition_after. Locks on tags: see docs/decisions/0002.
--
-- SQLSTATE HR010: a stream is at another version; HR011: the condition does not hold. Two appends that extend a
-- stream at the same moment meet in events_stream_version: the later one gets unique_violation.
create function headrace.append_v1(
    p_streams text[], p_types text[], p_data text[],
    p_metadata text[], p_tags text[], p_ids uuid[], p_recorded timestamptz[],
    p_expected_streams text[], p_expected int[],
    p_condition_tags text[], p_condition_types text[], p_condition_after bigint,
    out first bigint, out last bigint, out streams text[], out versions int[]
) language plpgsql as $$
declare
    v_stream text;
    v_expected int;
    v_found int;
    v_refused boolean;
    v_single boolean;
    v_at int;
    v_near constant int := 200;
    v_seen bigint;
    v_type text;
    v_position bigint;
begin
    if p_condition_tags is not null or p_tags is not null then
        perform headrace.lock_tags_v1(p_tags, p_condition_tags);
    end if;
    -- A new statement, so a new snapshot: what the locks waited for is visible from here on.
    if p_condition_tags is not null then
        -- A decision is mostly about the last few events. Only when there are more it is worth asking the index of tags,
        -- alone: beside a condition on the position the planner is tempted to read the log from there.
        with near as materialized (
            select e.position, e.type, e.tags from headrace.events e
             where e.position > p_condition_after order by e.position limit v_near)
        select (select count(*) from near), n.position, n.type into v_seen, v_position, v_type
          from (select) x left join (
              select position, type from near
               where tags @> p_condition_tags and (p_condition_types is null or type = any (p_condition_types))
               order by position limit 1) n on true;
        if v_position is null and v_seen = v_near then
            select t.position, t.type into v_position, v_type
              from (select e.position, e.type from headrace.events e
                     where e.tags @> p_condition_tags and e.tags <> '{}' offset 0) t
             where t.position > p_condition_after
               and (p_condition_types is null or t.type = any (p_condition_types))
             order by t.position limit 1;
        end if;
        if v_position is not null then
            raise exception 'the condition does not hold: an event of type "%" with the tags % is at position %, after %',
                v_type, p_condition_tags, v_position, p_condition_after using errcode = 'HR011';
        end if;
    end if;
    v_single := p_streams[1] = all (p_streams);
    if v_single then
        v_at := coalesce((select e.version from headrace.events e where e.stream = p_streams[1]
                           order by e.version desc limit 1), 0);
    end if;
    if v_single and p_expected_streams = p_streams[1:1] then
        v_refused := v_at is distinct from p_expected[1];
        v_stream := p_streams[1];
        v_expected := p_expected[1];
        v_found := v_at;
    elsif p_expected_streams is not null then
        select x.stream, x.expected, coalesce(m.version, 0), true into v_stream, v_expected, v_found, v_refused
          from unnest(p_expected_streams, p_expected) x(stream, expected)
          left join lateral (select e.version from headrace.events e where e.stream = x.stream
                              order by e.version desc limit 1) m on true
         where x.expected is distinct from coalesce(m.version, 0) limit 1;
    end if;
    if v_refused then
        raise exception 'stream "%" is at version %, expected was %', v_stream, v_found, v_expected
            using errcode = 'HR010';
    end if;
    -- One stream is by far the most frequent append, and needs half of what several do.
    if v_single then
        with i as (
            insert into headrace.events (stream, version, type, data, metadata, tags, event_id, recorded_at)
            select u.stream, v_at + u.place, u.type, u.data::jsonb,
                   coalesce(u.metadata::jsonb, '{}'), coalesce(u.tags::text[], '{}'),
                   coalesce(u.id, gen_random_uuid()), coalesce(u.recorded, clock_timestamp())
              from unnest(p_streams, p_types, p_data, p_metadata, p_tags, p_ids, p_recorded)
                with ordinality u(stream, type, data, metadata, tags, id, recorded, place)
             order by u.place
            returning events.position)
        select min(i.position), max(i.position) into first, last from i;
        streams := p_streams[1:1];
        versions := array[v_at + cardinality(p_streams)];
        return;
    end if;
    with n as materialized (
        select u.* from unnest(p_streams, p_types, p_data, p_metadata, p_tags, p_ids, p_recorded)
            with ordinality u(stream, type, data, metadata, tags, id, recorded, place)),
    s as materialized (
        select d.stream, coalesce(m.version, 0) as version
          from (select distinct n.stream from n) d
          left join lateral (select e.version from headrace.events e where e.stream = d.stream
                              order by e.version desc limit 1) m on true),
    i as (
        -- Positions are drawn above the sort, so they rise in the order given.
        insert into headrace.events (stream, version, type, data, metadata, tags, event_id, recorded_at)
        select n.stream, s.version + row_number() over (partition by n.stream order by n.place), n.type, n.data::jsonb,
               coalesce(n.metadata::jsonb, '{}'), coalesce(n.tags::text[], '{}'),
               coalesce(n.id, gen_random_uuid()), coalesce(n.recorded, clock_timestamp())
          from n join s using (stream)
         order by n.place
        returning events.position, events.stream, events.version)
    select min(x.lowest), max(x.highest), array_agg(x.stream), array_agg(x.version)
      into first, last, streams, versions
      from (select min(i.position) as lowest, max(i.position) as highest, i.stream, max(i.version) as version
              from i group by i.stream) x;
end $$;

-- Locks that make conditions hold against concurrent appends through append_v1: exclusive on one tag of the
-- condition, shared on every tag written. All in one ascending pass, so that appends never wait in a circle.
create function headrace.lock_tags_v1(p_written text[], p_condition text[]) returns void language plpgsql as $$
declare
    v_class constant int := ('x' || md5('headrace.tags'))::bit(32)::int;
    v_many constant int := 64;
    v_tags text[];
    v_key int;
    v_exclusive boolean;
begin
    select array_agg(distinct t.tag) into v_tags from unnest(p_written) w(tags), unnest(w.tags::text[]) t(tag);
    -- Key 0 stands for all tags: a condition shares it, an append with too many tags for the lock table owns it.
    if cardinality(v_tags) > v_many then
        perform pg_advisory_xact_lock(v_class, 0);
        v_tags := null;
    elsif p_condition is not null then
        perform pg_advisory_xact_lock_shared(v_class, 0);
    end if;
    for v_key, v_exclusive in
        select k.key, bool_or(k.exclusive)
          from (select hashtext(c.tag) as key, true as exclusive from (select p_condition[1]) c(tag)
                 where p_condition is not null
                union all
                select hashtext(w.tag), false from unnest(v_tags) w(tag)) k
         group by k.key order by k.key
    loop
        if v_exclusive then
            perform pg_advisory_xact_lock(v_class, v_key);
        else
            perform pg_advisory_xact_lock_shared(v_class, v_key);
        end if;
    end loop;
end $$;

-- Appends a chunk of an import: versions are computed, events whose id is stored already are passed over, and so is
-- a second event of one id in the chunk. All or nothing; returns how many were added.
create function headrace.import_v1(
    p_streams text[], p_types text[], p_data text[],
    p_metadata text[], p_tags text[], p_ids uuid[], p_recorded timestamptz[]
) returns bigint language plpgsql as $$
begin
    with u as (
        select * from unnest(p_streams, p_types, p_data, p_metadata, p_tags, p_ids, p_recorded)
            with ordinality u(stream, type, data, metadata, tags, id, recorded, place)),
    first as (
        select distinct on (u.id) u.* from u
         where not exists (select from headrace.events e where e.event_id = u.id) order by u.id, u.place)
    select array_agg(f.stream order by f.place), array_agg(f.type order by f.place),
           array_agg(f.data order by f.place),
           case when p_metadata is not null then array_agg(f.metadata order by f.place) end,
           case when p_tags is not null then array_agg(f.tags order by f.place) end,
           array_agg(f.id order by f.place), array_agg(f.recorded order by f.place)
      into p_streams, p_types, p_data, p_metadata, p_tags, p_ids, p_recorded
      from first f;
    if p_streams is null then
        return 0;
    end if;
    perform headrace.append_v1(
        p_streams, p_types, p_data, p_metadata, p_tags, p_ids, p_recorded, null, null, null, null, null);
    return cardinality(p_streams);
end $$;

-- One look at the line of a reader: the sequence first, then who may still insert below what comes next.
--
-- nextval holds ROW EXCLUSIVE on the sequence, INSERT on the table, both to the end of the transaction; every mode a
-- transaction holds is a row of its own in pg_locks, so stronger ones need no look. Never read the sequence with
-- SELECT: for a moment it shows values that nobody has drawn. This function must stay volatile plpgsql, so that each
-- statement has its own snapshot; the reader's rows come in a later statement still.
create function headrace.horizon_v1(
    p_sequence oid, p_table oid,
    out sequence bigint, out cache bigint, out server text, out vxids text[], out pids int[]
) language plpgsql volatile as $$
begin
    if pg_is_in_recovery() then
        raise exception 'this server is a standby: it knows no open appends; read from the primary'
            using errcode = 'HR020';
    end if;
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'the horizon needs READ COMMITTED, this transaction is %',
            current_setting('transaction_isolation') using errcode = 'HR021';
    end if;
    sequence := coalesce(pg_sequence_last_value(p_sequence::regclass), 0);
    select array_agg(h.virtualtransaction), array_agg(h.pid) into vxids, pids
      from (select l.virtualtransaction, max(l.pid) as pid
              from pg_locks l
             where l.locktype = 'relation' and l.relation in (p_sequence, p_table)
               and l.database = (select d.oid from pg_database d where d.datname = current_database())
               and l.mode = 'RowExclusiveLock' and l.granted and l.pid is distinct from pg_backend_pid()
             group by l.virtualtransaction) h;
    select s.seqcache into cache from pg_sequence s where s.seqrelid = p_sequence;
    -- Changes whenever the sequence may have gone back: a restart of the server, or a crash of one of its processes
    -- (the statistics are thrown away then, and nothing else that everybody may read tells).
    server := pg_postmaster_start_time()::text || ' ' || coalesce((select a.stats_reset::text from pg_stat_archiver a), '');
end $$;

-- JSON text that another store keeps as bytes. Bytes that are not UTF-8, or hold NUL, come back in their hex form: one
-- bad row must not fail the page that it is on.
create function headrace.text_of_v1(p_bytes bytea) returns text language plpgsql immutable strict parallel safe as $$
begin
    return convert_from(p_bytes, 'UTF8');
exception when data_exception then
    return p_bytes::text;
end $$;
