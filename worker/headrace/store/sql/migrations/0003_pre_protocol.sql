-- Server side of the partition protocol. In plpgsql every statement gets a new snapshot in READ COMMITTED,
-- which the order of these statements relies on. Times: statement_timestamp() where an index must serve,
-- clock_timestamp() in what is written. SQLSTATEs: HR001 lease lost, HR002 to HR004 the protocol was broken.
--
-- ready.attempts: 0 where no failure is recorded, n after n failures of the event at hand, -1 when a person has
-- resumed the key and nothing of its new budget is used. Other than 0 if and only if there is a failures row.
--
-- `ready` and `inbox` swing between empty and a million rows within minutes, so statistics are always stale: a table
-- that was vacuumed while nearly empty looks like ten rows for ever. Statements here therefore join nothing to them:
-- rows are found by an array of keys, and the value that belongs to a row is found in a second array by binary search
-- (width_bucket, hence arrays sorted by part). Sequential and bitmap scans are off: each has its index. Where the order
-- of an index is meant, sorting is off too, or it looks as cheap as walking in order. Compiling is off: a wrong
-- estimate would buy it for a statement of a millisecond.

-- Claim: take due partitions under a new lease. Looks at neither status nor expiry: the load does.
create function headrace.claim_v1(
    p_run int, p_lease bigint, p_owner uuid, p_worker text, p_lanes int,
    p_parts int, p_events bigint, p_floor bigint, p_ttl interval
) returns table (part bigint, backlog int, attempts smallint, takeovers smallint)
language plpgsql set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
                 set enable_incremental_sort = off set jit = off as $$
declare
    v_due bigint;
    v_share bigint := p_parts;
begin
    -- A claim lost in a crash is a claim that never was: nobody need wait for the disk. Must be set here:
    -- a function's own SET clause ends before the commit.
    perform set_config('synchronous_commit', 'off', true);
    if p_lanes > 1 then
        select count(*) into v_due from (
            select from headrace.ready r
             where r.run = p_run and r.lease is null and r.due_at <= statement_timestamp()
             limit p_lanes::bigint * 1000) x;
        v_share := greatest(ceil(v_due::numeric / p_lanes)::bigint, 1);
    end if;
    return query
    with c as materialized (
        select r.part, r.backlog, r.due_at, r.takeovers from headrace.ready r
         where r.run = p_run and r.lease is null and r.due_at <= statement_timestamp()
         order by r.due_at
         limit least(p_parts, greatest(v_share, p_floor))
           for update skip locked),
    s as materialized (
        select c.part, c.takeovers, row_number() over w as n,
               sum(c.backlog) over w - c.backlog as before, first_value(c.takeovers) over w as lead
          from c window w as (order by c.due_at, c.part rows unbounded preceding)),
    g as materialized (
        -- A key that has outlived two owners may be what killed them: it goes alone.
        select s.part from s
         where case when s.lead >= 2 then s.n = 1 else s.takeovers < 2 end
           and s.before < p_events and (s.n <= v_share or s.before < p_floor)),
    l as (
        insert into headrace.leases (id, run, owner, worker, parts, events, expires_at)
        select p_lease, p_run, p_owner, p_worker, (select count(*) from g), p_events, clock_timestamp() + p_ttl
         where exists (select from g))
    update headrace.ready r set lease = p_lease
     where r.part = any (array(select g.part from g))
    returning r.part, r.backlog, greatest(r.attempts, 0::smallint), r.takeovers;
end $$;

-- What waits: for each run whether work is due now, or in how many seconds the next is.
create function headrace.due_v1(p_runs int[])
    returns table (run int, status text, epoch bigint, due boolean, due_in float8)
language plpgsql stable set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
                 set enable_incremental_sort = off set jit = off as $$
begin
    return query
    select s.run, s.status, s.epoch, coalesce(r.due_at <= statement_timestamp(), false),
           case when r.due_at < 'infinity' then extract(epoch from r.due_at - statement_timestamp())::float8 end
      from unnest(p_runs) u(run)
     cross join lateral (select s.run, s.status, s.epoch from headrace.subscriptions s where s.run = u.run limit 1) s
      left join lateral (select r.due_at from headrace.ready r
                          where r.run = u.run and r.lease is null order by r.due_at limit 1) r on true;
end $$;

-- Fence: the lease row exists and stays until this transaction ends. Expiry does not matter here.
create function headrace.fence_v1(p_lease bigint, p_owner uuid, p_idle_ms text) returns void
language plpgsql as $$
begin
    if p_idle_ms is not null then
        perform set_config('idle_in_transaction_session_timeout', p_idle_ms, true);
    end if;
    perform from headrace.leases where id = p_lease and owner = p_owner for key share;
    if not found then
        raise exception 'lease % is gone', p_lease using errcode = 'HR001';
    end if;
    -- Gone as soon as this transaction ends: shows whether a handler's script has ended it.
    perform set_config('headrace_fence.lease', p_lease::text, true);
end $$;

-- Flush of a claim group or of some of its partitions.
-- p_mode: 'end' frees every row of the lease and deletes it last; 'part' frees the listed partitions and
-- keeps the lease for the others; 'keep' keeps the listed ones leased as well. p_parts rises; p_last and p_counts
-- belong to it place by place.
create function headrace.flush_v1(
    p_run int, p_lease bigint, p_owner uuid, p_fence boolean,
    p_parts bigint[], p_last bigint[], p_counts int[], p_inbox_parts bigint[], p_inbox_positions bigint[],
    p_skipped int, p_slot smallint, p_busy_us bigint, p_mode text
) returns table (drained int, status text, epoch bigint, streak int)
language plpgsql set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
    n int;
    m int;
    d int := 0;
    v_failing bigint[];
begin
    if p_fence then
        perform headrace.fence_v1(p_lease, p_owner, null);
    end if;
    if cardinality(p_parts) > 0 then
        update headrace.partitions p set position = p_last[width_bucket(p.id, p_parts)], touched_at = clock_timestamp()
         where p.id = any (p_parts) and p.position < p_last[width_bucket(p.id, p_parts)];
        get diagnostics n = row_count;
        if n <> cardinality(p_parts) then
            raise exception '% of % partitions are gone or ahead', cardinality(p_parts) - n, cardinality(p_parts)
                using errcode = 'HR002';
        end if;
        -- The inbox row is a single-use ticket: the count proves that nobody else used one of these.
        -- By place in the table, which is safe here alone: an inbox row is never updated.
        delete from headrace.inbox i where i.ctid = any (array(
            select x.place from unnest(p_inbox_parts, p_inbox_positions) u(part, position)
             cross join lateral (select i.ctid as place from headrace.inbox i
                                  where i.part = u.part and i.position = u.position limit 1) x));
        get diagnostics n = row_count;
        if n <> cardinality(p_inbox_parts) then
            raise exception '% of % inbox entries are gone', cardinality(p_inbox_parts) - n, cardinality(p_inbox_parts)
                using errcode = 'HR003';
        end if;
    end if;
    -- One pass in part order over every row this transaction will touch. Statements after it find rows by primary key
    -- alone: a lease condition there lures the planner into the lease index. The order is by an expression, or the
    -- planner may walk the whole primary key to save the sort.
    if p_mode = 'end' then
        select count(*), array_agg(x.part) filter (where x.attempts <> 0) into n, v_failing from (
            select r.part, r.attempts from headrace.ready r where r.lease = p_lease order by r.part + 0 for update) x;
    else
        select count(*), array_agg(x.part) filter (where x.attempts <> 0) into n, v_failing from (
            select r.part, r.attempts from headrace.ready r
             where r.part = any (p_parts) and r.lease = p_lease order by r.part for update) x;
    end if;
    if n < cardinality(p_parts) then
        raise exception '% of % ready rows are gone', cardinality(p_parts) - n, cardinality(p_parts)
            using errcode = 'HR004';
    end if;
    if cardinality(p_parts) > 0 then
        delete from headrace.ready r
         where r.part = any (p_parts) and r.backlog = p_counts[width_bucket(r.part, p_parts)];
        get diagnostics d = row_count;
        if d < cardinality(p_parts) then
            update headrace.ready r set
                backlog = r.backlog - p_counts[width_bucket(r.part, p_parts)],
                first_pos = (select i.position from headrace.inbox i
                              where i.part = r.part and i.position > p_last[width_bucket(r.part, p_parts)]
                              order by i.position limit 1),
                lease = case when p_mode = 'keep' then r.lease end,
                due_at = clock_timestamp(),
                attempts = 0,
                takeovers = 0
             where r.part = any (p_parts);
        end if;
        if v_failing is not null then
            delete from headrace.failures f where f.part = any (v_failing) and f.part = any (p_parts);
        end if;
    end if;
    if cardinality(p_inbox_parts) > 0 or p_busy_us > 0 then
        insert into headrace.counters as c (run, slot, handled, drained, skipped, busy_us)
        values (p_run, p_slot, cardinality(p_inbox_parts) - p_skipped, d, p_skipped, p_busy_us)
        on conflict (run, slot) do update set
            handled = c.handled + excluded.handled, drained = c.drained + excluded.drained,
            skipped = c.skipped + excluded.skipped, busy_us = c.busy_us + excluded.busy_us;
    end if;
    if p_mode = 'end' then
        -- Rows that were claimed and not handled: due again, behind those that wait longer.
        update headrace.ready r set lease = null, due_at = clock_timestamp() where r.lease = p_lease;
        get diagnostics m = row_count;
        -- What was locked, less what is left now, is what the flush freed: a listed row that was none of the lease's
        -- shows here, without comparing two lists.
        if n - m <> cardinality(p_parts) then
            raise exception '% of % ready rows are gone', cardinality(p_parts) - (n - m), cardinality(p_parts)
                using errcode = 'HR004';
        end if;
        delete from headrace.leases l where l.id = p_lease;
    end if;
    return query select d, s.status, s.epoch, s.streak from headrace.subscriptions s where s.run = p_run;
end $$;

-- Flush of an unpartitioned subscription: its one partition moves from where the load found it.
create function headrace.flush_log_v1(
    p_run int, p_lease bigint, p_owner uuid, p_fence boolean, p_part bigint, p_from bigint, p_to bigint,
    p_handled int, p_slot smallint, p_busy_us bigint, p_mode text
) returns table (drained int, status text, epoch bigint, streak int)
language plpgsql set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
    v_attempts smallint;
begin
    if p_fence then
        perform headrace.fence_v1(p_lease, p_owner, null);
    end if;
    if p_to <> p_from then
        update headrace.partitions p set position = p_to, touched_at = clock_timestamp()
         where p.id = p_part and p.position = p_from and p_from < p_to;
        if not found then
            raise exception 'position of partition % is not %', p_part, p_from using errcode = 'HR002';
        end if;
    end if;
    select r.attempts into v_attempts from headrace.ready r where r.part = p_part and r.lease = p_lease for update;
    if not found then
        raise exception 'ready row of partition % is gone', p_part using errcode = 'HR004';
    end if;
    update headrace.ready r set
        lease = case when p_mode = 'end' then null else r.lease end, first_pos = p_to,
        due_at = clock_timestamp(),
        attempts = case when p_to > p_from then 0 else r.attempts end,
        takeovers = case when p_to > p_from then 0 else r.takeovers end
     where r.part = p_part;
    if v_attempts <> 0 and p_to > p_from then
        delete from headrace.failures f where f.part = p_part;
    end if;
    if p_handled > 0 or p_busy_us > 0 then
        insert into headrace.counters as c (run, slot, handled, busy_us) values (p_run, p_slot, p_handled, p_busy_us)
        on conflict (run, slot) do update set
            handled = c.handled + excluded.handled, busy_us = c.busy_us + excluded.busy_us;
    end if;
    if p_mode = 'end' then
        delete from headrace.leases l where l.id = p_lease;
    end if;
    return query select 0, s.status, s.epoch, s.streak from headrace.subscriptions s where s.run = p_run;
end $$;

-- A key failed: due later (p_delay null: waits for a person), freed from the lease, one failures row.
create function headrace.fail_v1(
    p_run int, p_lease bigint, p_owner uuid, p_part bigint, p_position bigint, p_state text, p_delay interval,
    p_class text, p_error_type text, p_error text, p_worker text, p_slot smallint
) returns int
language plpgsql set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
    v_due timestamptz := coalesce(clock_timestamp() + p_delay, 'infinity');
    v_attempts int;
begin
    perform headrace.fence_v1(p_lease, p_owner, null);
    update headrace.ready r set due_at = v_due, lease = null, takeovers = 0,
           attempts = least(greatest(r.attempts, 0) + 1, 32767)::smallint
     where r.part = p_part and r.lease = p_lease
    returning r.attempts into v_attempts;
    if not found then
        raise exception 'ready row of partition % is gone', p_part using errcode = 'HR004';
    end if;
    insert into headrace.failures as f
        (part, run, position, state, attempts, class, error_type, error, next_retry_at, worker, streak_id)
    values (p_part, p_run, p_position, p_state, v_attempts, p_class, p_error_type, p_error,
            nullif(v_due, 'infinity'), p_worker,
            coalesce((select s.streak_id from headrace.subscriptions s where s.run = p_run), 0))
    on conflict (part) do update set
        position = excluded.position, state = excluded.state, attempts = excluded.attempts,
        class = excluded.class, error_type = excluded.error_type, error = excluded.error,
        failed_at = clock_timestamp(), next_retry_at = excluded.next_retry_at, worker = excluded.worker,
        first_failed_at = case when f.position = excluded.position then f.first_failed_at else clock_timestamp() end;
    if p_state <> 'backing off' then
        insert into headrace.counters as c (run, slot, parked) values (p_run, p_slot, 1)
        on conflict (run, slot) do update set parked = c.parked + 1;
    end if;
    return v_attempts;
end $$;

-- A key asks for a pause (Busy, stop, an aborted transaction): due later, no attempt, no failures row.
create function headrace.slow_v1(p_lease bigint, p_owner uuid, p_part bigint, p_delay interval) returns void
language plpgsql set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
begin
    perform headrace.fence_v1(p_lease, p_owner, null);
    update headrace.ready r set due_at = clock_timestamp() + p_delay, lease = null, takeovers = 0
     where r.part = p_part and r.lease = p_lease;
    if not found then
        raise exception 'ready row of partition % is gone', p_part using errcode = 'HR004';
    end if;
end $$;

-- Held keys leave the group. The partition rows are locked so that an unhold in between waits.
create function headrace.hold_v1(p_lease bigint, p_owner uuid, p_parts bigint[]) returns int
language plpgsql set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
    v_held bigint[];
    n int;
begin
    perform headrace.fence_v1(p_lease, p_owner, null);
    select array_agg(x.id) into v_held from (
        select p.id from headrace.partitions p
         where p.id = any (p_parts) and p.hold is not null order by p.id for share) x;
    perform from headrace.ready r where r.part = any (v_held) and r.lease = p_lease order by r.part for update;
    update headrace.ready r set due_at = 'infinity', lease = null where r.part = any (v_held) and r.lease = p_lease;
    get diagnostics n = row_count;
    return n;
end $$;

-- Give leases back. A lease that is gone already is not an error: somebody took it over.
create function headrace.release_v1(p_leases bigint[], p_owner uuid) returns int
language plpgsql set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
    v_ids bigint[];
    n int;
begin
    perform set_config('synchronous_commit', 'off', true);
    with d as (delete from headrace.leases l where l.id = any (p_leases) and l.owner = p_owner returning l.id)
    select array_agg(d.id) into v_ids from d;
    if v_ids is null then
        return 0;
    end if;
    perform from headrace.ready r where r.lease = any (v_ids) order by r.part + 0 for update;
    update headrace.ready r set lease = null where r.lease = any (v_ids);
    get diagnostics n = row_count;
    return n;
end $$;

-- Take over what dead or stalled workers held. Skips a lease whose owner's transaction is open: that one
-- still commits, or its idle time-out ends it.
create function headrace.take_over_v1() returns table (lease bigint, run int, worker text, parts int)
language plpgsql set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
    v_ids bigint[];
    v_runs int[];
    v_workers text[];
    v_parts int[];
begin
    perform set_config('synchronous_commit', 'off', true);
    with d as (
        delete from headrace.leases l where l.id in (
            select x.id from headrace.leases x where x.expires_at < statement_timestamp() for update skip locked)
        returning l.id, l.run, l.worker, l.parts)
    select array_agg(d.id), array_agg(d.run), array_agg(d.worker), array_agg(d.parts)
      into v_ids, v_runs, v_workers, v_parts from d;
    if v_ids is null then
        return;
    end if;
    perform from headrace.ready r where r.lease = any (v_ids) order by r.part + 0 for update;
    update headrace.ready r set lease = null, takeovers = least(r.takeovers + 1, 32767)::smallint
     where r.lease = any (v_ids);
    return query select * from unnest(v_ids, v_runs, v_workers, v_parts);
end $$;

-- Renew leases; a lease that is being released must not hold up the others.
create function headrace.renew_v1(p_leases bigint[], p_owner uuid, p_ttl interval) returns setof bigint
language plpgsql as $$
begin
    perform set_config('synchronous_commit', 'off', true);
    return query
    with mine as materialized (
        select l.id from headrace.leases l
         where l.id = any (p_leases) and l.owner = p_owner for no key update skip locked)
    update headrace.leases l set expires_at = clock_timestamp() + p_ttl from mine
     where l.id = mine.id returning l.id;
end $$;

-- Remember which partitions got work, for an estimate of how many different ones did lately: adaptive
-- sampling (Wegman; Flajolet 1990, "On adaptive sampling"), exact below 2,048 keys.
create function headrace.touch_v1(p_run int, p_parts bigint[]) returns void
language plpgsql as $$
declare
    v_minute timestamptz := date_trunc('minute', clock_timestamp());
    t headrace.touches;
    v_is_new boolean;
    v_size int;
    v_depth smallint;
begin
    if p_parts is null then
        return;
    end if;
    select * into t from headrace.touches x where x.run = p_run;
    v_is_new := not found;
    if v_is_new then
        t := row(p_run, v_minute, 0, '{}'::int[], 0, '{}'::int[]);
    elsif t.minute_at <> v_minute then
        v_is_new := true;
        if t.minute_at = v_minute - interval '1 minute' then
            t.last_depth := t.depth;
            t.last_sample := t.sample;
        else
            t.last_depth := 0;
            t.last_sample := '{}';
        end if;
        t.minute_at := v_minute;
        t.depth := 0;
        t.sample := '{}';
    end if;
    v_size := cardinality(t.sample);
    v_depth := t.depth;
    select coalesce(array_agg(distinct x.h), '{}') into t.sample from (
        select unnest(t.sample) as h
        union all
        select hashint8(p) from unnest(p_parts) p where hashint8(p) & ((1 << t.depth) - 1) = 0) x;
    while cardinality(t.sample) > 2048 loop
        t.depth := t.depth + 1;
        select coalesce(array_agg(h), '{}') into t.sample from unnest(t.sample) h where h & ((1 << t.depth) - 1) = 0;
    end loop;
    if v_is_new then
        insert into headrace.touches values (t.run, t.minute_at, t.depth, t.sample, t.last_depth, t.last_sample)
        on conflict (run) do update set minute_at = excluded.minute_at, depth = excluded.depth,
            sample = excluded.sample, last_depth = excluded.last_depth, last_sample = excluded.last_sample;
    elsif t.depth <> v_depth or cardinality(t.sample) <> v_size then
        -- Most small batches touch keys that are in the sample already, or are none of it: those write nothing.
        update headrace.touches x set depth = t.depth, sample = t.sample where x.run = p_run;
    end if;
end $$;

create function headrace.touched_v1(p_run int) returns bigint
language plpgsql stable as $$
declare
    v_minute timestamptz := date_trunc('minute', clock_timestamp());
    t headrace.touches;
    v_depth int;
    n bigint;
begin
    select * into t from headrace.touches x where x.run = p_run;
    if not found or t.minute_at < v_minute - interval '1 minute' then
        return 0;
    end if;
    if t.minute_at < v_minute then
        t.last_depth := t.depth;
        t.last_sample := t.sample;
        t.depth := 0;
        t.sample := '{}';
    end if;
    v_depth := greatest(t.depth, t.last_depth);
    select count(distinct h) into n from (
        select unnest(t.sample) as h union all select unnest(t.last_sample)) x
     where h & ((1 << v_depth) - 1) = 0;
    return n << v_depth;
end $$;

-- Idle removal: a slice of partitions with nothing in them. Only the holder of the cursor row may.
create function headrace.sweep_v1(p_run int, p_idle interval, p_slice int) returns int
language plpgsql set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
declare
    v_from bigint;
    v_to bigint;
    n int;
begin
    select c.sweep into v_from from headrace.cursors c where c.run = p_run for no key update skip locked;
    if not found then
        return -1;
    end if;
    select max(x.id) into v_to from (
        select p.id from headrace.partitions p where p.id > v_from order by p.id limit p_slice) x;
    delete from headrace.partitions p
     where p.id > v_from and p.id <= v_to and p.hold is null
       and p.run + 0 = p_run  -- an expression, or an empty table's plan would walk all keys of the run
       and p.touched_at < statement_timestamp() - p_idle
       -- The offset keeps each a probe per row, never a join.
       and not exists (select from headrace.ready r where r.part = p.id offset 0)
       and not exists (select from headrace.inbox i where i.part = p.id offset 0)
       and not exists (select from headrace.failures f where f.part = p.id offset 0);
    get diagnostics n = row_count;
    update headrace.cursors c set sweep = coalesce(v_to, 0) where c.run = p_run;
    return n;
end $$;
