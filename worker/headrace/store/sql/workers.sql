-- Heartbeats. A worker lives while its last beat is younger than three of its own intervals.

-- name: beat
-- Write the beat, and count the live lanes of every subscription that is declared; one round trip. The row of this
-- worker is not visible to the statement that writes it, so it is counted from what it says.
with b as (
    insert into headrace.workers as w
        (id, app, name, version, subscriptions, lanes, beat_every, source, horizon, head, held_by, held_since, routing,
         declared)
    values ($1, $2, $3, $4, $5::text[], $6, $7::interval, $8, $9, $10, $11, $12, $13::text[], $14::text[])
    on conflict (id) do update set
        app = excluded.app, name = excluded.name, version = excluded.version, subscriptions = excluded.subscriptions,
        lanes = excluded.lanes, beat_at = clock_timestamp(), beat_every = excluded.beat_every, source = excluded.source,
        horizon = excluded.horizon, head = excluded.head, held_by = excluded.held_by, held_since = excluded.held_since,
        routing = excluded.routing,
        declared = excluded.declared,
        steady_since = case when w.beat_at < clock_timestamp() - 3 * w.beat_every then clock_timestamp()
                            else w.steady_since end)
select n.name, sum(l.lanes)::int as lanes
  from (select w.subscriptions, w.lanes from headrace.workers w
         where w.id <> $1 and w.beat_at > statement_timestamp() - 3 * w.beat_every
        union all select $5::text[], $6) l
 cross join lateral (select distinct s.name from unnest(l.subscriptions) s(name)) n
 group by n.name;

-- name: leave
-- A worker signs off, and sweeps away those that did not.
delete from headrace.workers w where w.id = $1 or w.beat_at < statement_timestamp() - interval '1 hour';
