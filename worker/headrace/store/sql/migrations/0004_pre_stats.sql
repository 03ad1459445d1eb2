-- What people and the operator look at; nothing here is read by workers. Every figure costs a bounded number of index
-- entries, whatever the backlog: exact where that is cheap, else extrapolated from what was counted.

-- The ledger of failing keys in its order, page by page; a position fails in one partition of a run. The partition is
-- no column of it: a look-up by partition would find this index as cheap as the primary key.
create index failures_position on headrace.failures (run, position);

-- Events of an event table that a subscription wants between two positions: exact up to about p_cap, then extrapolated
-- by position. p_events is the relation as SQL; it comes from headrace.sources, which only workers write.
create function headrace.count_wanted_v1(
    p_events text, p_by_type boolean, p_types text[], p_streams text[], p_tags text[],
    p_after bigint, p_upto bigint, p_cap int
) returns bigint
language plpgsql stable set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
                        set enable_incremental_sort = off set jit = off as $$
declare
    n bigint;
begin
    if p_upto <= p_after then
        return 0;
    elsif p_by_type and p_types is not null and p_streams is null and p_tags is null then
        -- Each type by its own index entries: a rare one never reads the others.
        execute format($q$
            select coalesce(sum(case when x.n < $4 then x.n
                                     else round(x.n::numeric * ($3 - $2) / (x.last - $2)) end), 0)
              from (select distinct t.type from unnest($1::text[]) t(type)) t
             cross join lateral (
                  select count(*) as n, max(e.position) as last
                    from (select e.position from %s e
                           where (e.type, e.position) > (t.type, $2) and (e.type, e.position) <= (t.type, $3)
                           order by e.type, e.position limit $4) e) x
            $q$, p_events)
           into n using p_types, p_after, p_upto, greatest(p_cap / greatest(cardinality(p_types), 1), 100);
    else
        execute format($q$
            select case when x.rows < $6 then x.n else round(x.n::numeric * ($5 - $4) / (x.last - $4)) end
              from (select count(*) as rows, max(e.position) as last,
                           count(*) filter (where ($1 is null or e.type = any ($1))
                                              and ($2 is null or e.stream = any ($2))
                                              and ($3 is null or e.tags @> $3)) as n
                      from (select e.position, e.type, e.stream, e.tags from %s e
                             where e.position > $4 and e.position <= $5 order by e.position limit $6) e) x
            $q$, p_events)
           into n using p_types, p_streams, p_tags, p_after, p_upto, p_cap;
    end if;
    return n;
end $$;

-- One row per subscription. Stable, so that all of it comes from the snapshot of the caller's statement.
create function headrace.stats_of_v1(p_names text[] default null) returns table (
    subscription text, app text, group_name text, status text, status_reason text, "position" bigint, head bigint,
    horizon_held_seconds float8, unrouted bigint, held bigint, inboxed bigint, waiting bigint, in_flight bigint,
    oldest_seconds float8, pending_partitions bigint, touched_partitions bigint, largest_partition bigint,
    parked bigint, next_due_at timestamptz, arrivals_total bigint, processed_total bigint, busy_seconds_total float8,
    workers int, capacity int, sampled_at timestamptz)
language plpgsql stable set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
                        set enable_incremental_sort = off set jit = off as $$
declare
    k_cap constant int := 10000;
    k_keys constant int := 1000;
    s record;
    v_events text;
    v_horizon bigint;
    v_held_by text;
    v_held_since timestamptz;
    v_live boolean;
    v_first bigint;
    v_later bigint;
    v_later_events numeric;
    v_due bigint;
    v_leased bigint;
    v_messages bigint;
    v_keys bigint;
    v_oldest timestamptz;
    v_why text[];
begin
    for s in
        select b.*, coalesce(c.position, 0) as routed_to, coalesce(c.routed, 0) as routed,
               coalesce(c.activated, 0) as activated, w.id as whole, w.position as whole_position
          from headrace.subscriptions b
          left join headrace.cursors c on c.run = b.run
          left join headrace.partitions w on w.run = b.run and w.key = '' and not b.partitioned
         where p_names is null or b.name = any (p_names)
         order by b.name
    loop
        subscription := s.name; app := s.app; group_name := s.group_name; status := s.status;
        sampled_at := clock_timestamp();
        position := coalesce(s.whole_position, s.routed_to);
        v_events := coalesce((select o.events_sql from headrace.sources o where o.name = s.source), 'headrace.events');
        execute format('select e.position from %s e order by e.position desc limit 1', v_events) into head;
        head := coalesce(head, 0);

        select count(*), coalesce(sum(w.lanes), 0) into workers, capacity from headrace.workers w
         where w.beat_at > statement_timestamp() - 3 * w.beat_every and s.name = any (w.subscriptions);
        select true, w.horizon, w.held_by, w.held_since into v_live, v_horizon, v_held_by, v_held_since
          from headrace.workers w
         where w.beat_at > statement_timestamp() - 3 * w.beat_every and w.source is not distinct from s.source
           and w.horizon is not null
         order by w.beat_at desc limit 1;
        -- Nobody who lives tells the line: what is visible counts, and whoever wakes up tells the truth.
        v_horizon := case when v_live then v_horizon else head end;
        horizon_held_seconds := case
            when v_live then greatest(coalesce(extract(epoch from clock_timestamp() - v_held_since), 0), 0) end;
        unrouted := headrace.count_wanted_v1(v_events, s.source is null, s.wanted_types, s.wanted_streams,
                                             s.wanted_tags, position, least(v_horizon, head), k_cap);
        held := headrace.count_wanted_v1(v_events, s.source is null, s.wanted_types, s.wanted_streams, s.wanted_tags,
                                         greatest(position, v_horizon), head, k_cap);

        select coalesce(sum(n.handled + n.skipped), 0), coalesce(sum(n.busy_us), 0) / 1e6,
               s.routed - coalesce(sum(n.handled + n.skipped), 0), s.activated - coalesce(sum(n.drained), 0)
          into processed_total, busy_seconds_total, v_messages, v_keys
          from headrace.counters n where n.run = s.run;
        select coalesce(sum(l.parts), 0) into v_leased from headrace.leases l
         where l.run = s.run and l.purpose = 'work';
        select coalesce(sum(x.backlog), 0) into in_flight from (
            select r.backlog from headrace.leases l join headrace.ready r on r.lease = l.id
             where l.run = s.run limit 2 * k_cap) x;
        select count(*) into parked from (
            select from headrace.failures f
             where f.run = s.run and f.state in ('parked', 'waiting') limit 10 * k_cap) x;
        select min(r.due_at) into next_due_at from (
            select r.due_at from headrace.ready r
             where r.run = s.run and r.lease is null and r.due_at > statement_timestamp() and r.due_at < 'infinity'
             order by r.due_at limit 1) r;

        if s.whole is null then
            -- Keys that wait for a time or a person.
            select count(*), coalesce(sum(x.backlog), 0) into v_later, v_later_events from (
                select r.backlog from headrace.ready r
                 where r.run = s.run and r.lease is null and r.due_at > statement_timestamp()
                 order by r.due_at limit k_keys) x;
            if v_later = k_keys then
                select count(*) into v_due from (
                    select from headrace.ready r
                     where r.run = s.run and r.lease is null and r.due_at <= statement_timestamp()
                     order by r.due_at limit k_cap) x;
                v_later_events := v_later_events / v_later;
                v_later := greatest(k_keys, case when v_due < k_cap then v_keys - v_due - v_leased else parked end);
                v_later_events := v_later_events * v_later;
            end if;
            waiting := least(round(v_later_events), v_messages);
            inboxed := v_messages - waiting;
            pending_partitions := greatest(v_keys - v_later, 0);
            select max(x.backlog) into largest_partition from (
                (select r.backlog from headrace.ready r
                  where r.run = s.run and r.lease is null and r.due_at <= statement_timestamp()
                  order by r.due_at limit k_keys)
                union all
                (select r.backlog from headrace.leases l join headrace.ready r on r.lease = l.id
                  where l.run = s.run limit k_cap)) x;
            -- Everything below the lowest first position of a key that is due or leased is handled, or is waiting.
            select x.first_pos into v_first from (
                select r.first_pos, r.lease, r.due_at from headrace.ready r
                 where r.run = s.run order by r.run, r.first_pos limit k_keys) x
             where x.lease is not null or x.due_at <= statement_timestamp()
             order by x.first_pos limit 1;
            if v_first is null then
                select r.first_pos into v_first from headrace.ready r
                 where r.run = s.run and r.lease is null and r.due_at <= statement_timestamp()
                 order by r.due_at limit 1;
            end if;
            arrivals_total := s.routed;
        else
            -- The whole log is one key, and what waits for it is not in any inbox.
            select count(*) into v_later from headrace.ready r
             where r.part = s.whole and r.lease is null and r.due_at > statement_timestamp();
            waiting := 0;
            inboxed := 0;
            in_flight := least(unrouted, coalesce((select sum(l.events) from headrace.leases l
                                                    where l.run = s.run and l.purpose = 'work'), 0));
            pending_partitions := case when unrouted > 0 and v_later = 0 then 1 else 0 end;
            largest_partition := case when pending_partitions > 0 then unrouted end;
            v_first := null;
            arrivals_total := processed_total;
        end if;
        largest_partition := coalesce(largest_partition, 0);
        touched_partitions := headrace.touched_v1(s.run);

        v_oldest := null;
        if v_first is not null then
            execute format('select e.appended_at from %s e where e.position >= $1 and e.position <= $1
                             order by e.position limit 1', v_events) into v_oldest using v_first;
        end if;
        if v_oldest is null and unrouted > 0 then
            -- The oldest wanted event nobody has routed; a look at as many rows as were counted.
            execute format($q$
                select x.appended_at from (
                    select e.position, e.type, e.stream, e.tags, e.appended_at from %s e
                     where e.position > $1 and e.position <= $2 order by e.position limit $3) x
                 where ($4 is null or x.type = any ($4)) and ($5 is null or x.stream = any ($5))
                   and ($6 is null or x.tags @> $6)
                 order by x.position limit 1$q$, v_events)
               into v_oldest
              using position, v_horizon, k_cap, s.wanted_types, s.wanted_streams, s.wanted_tags;
        end if;
        oldest_seconds := case when v_oldest is not null
                               then greatest(extract(epoch from clock_timestamp() - v_oldest), 0) end;

        v_why := array[]::text[];
        if s.status in ('error', 'failed') then
            v_why := v_why || coalesce(s.reason, 'no reason was given');
        elsif s.status = 'paused' then
            v_why := v_why || format('paused by a person: headrace reactivate %s', s.name);
        elsif s.status in ('booting', 'active') then
            if held > 0 and v_held_by is not null then
                v_why := v_why || format('%s events are held back at position %s by %s', held, v_horizon, v_held_by);
            end if;
            if parked > 0 then
                v_why := v_why || format('parked keys: %s (headrace failures list %s)', parked, s.name);
            end if;
            if workers = 0 and unrouted + v_messages + held > 0 then
                v_why := v_why || 'no live worker works on it'::text;
            end if;
        end if;
        status_reason := nullif(array_to_string(v_why, '; '), '');
        return next;
    end loop;
end $$;

-- What dashboards and the operator read; columns are only ever added, in a view of the next number.
create view headrace.stats_v1 as
select subscription, app, group_name, status, status_reason, position, head, horizon_held_seconds, unrouted, held,
       inboxed, waiting, in_flight, oldest_seconds, pending_partitions, touched_partitions, largest_partition, parked,
       next_due_at, arrivals_total, processed_total, busy_seconds_total, workers, capacity, sampled_at
  from headrace.stats_of_v1();
