-- A key that owners died with is only blamed for what happened while it was being handled: a lease that waited behind
-- other work when its worker ended says nothing about its keys. Up to two take-overs are counted as they come, which
-- makes a key a suspect; from then on its owner counts itself, before it begins.

-- The owner begins with a suspect; what it then flushes or records sets the count back.
create function headrace.suspect_v1(p_lease bigint, p_owner uuid, p_part bigint) returns void
language plpgsql set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
begin
    perform headrace.fence_v1(p_lease, p_owner, null);
    update headrace.ready r set takeovers = least(r.takeovers + 1, 32767)::smallint
     where r.part = p_part and r.lease = p_lease;
    if not found then
        raise exception 'ready row of partition % is gone', p_part using errcode = 'HR004';
    end if;
end $$;

-- The owner lives, and the key was not done for another reason: nothing is said against it.
create function headrace.absolve_v1(p_lease bigint, p_owner uuid, p_part bigint) returns void
language plpgsql set enable_seqscan = off set enable_bitmapscan = off set jit = off as $$
begin
    perform headrace.fence_v1(p_lease, p_owner, null);
    update headrace.ready r set takeovers = greatest(r.takeovers - 1, 2)::smallint
     where r.part = p_part and r.lease = p_lease and r.takeovers > 2;
end $$;

-- Take over what dead or stalled workers held. Skips a lease whose owner's transaction is open: that one
-- still commits, or its idle time-out ends it.
create function headrace.take_over_v2() returns table (lease bigint, run int, worker text, parts int)
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
    update headrace.ready r set lease = null, takeovers = (r.takeovers + (r.takeovers < 2)::int)::smallint
     where r.lease = any (v_ids);
    return query select * from unnest(v_ids, v_runs, v_workers, v_parts);
end $$;
