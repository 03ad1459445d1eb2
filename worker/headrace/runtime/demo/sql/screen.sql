-- What the screen of the demonstration shows, in one small statement.

-- name: look
-- The published statistics, what each worker holds, who lives, and the keys that fail: one snapshot, four columns.
select (select json_agg(row_to_json(v)) from (
            select s.subscription, s.status, s.status_reason, s.unrouted, s.held, s.inboxed, s.waiting, s.in_flight,
                   s.oldest_seconds, s.pending_partitions, s.parked, s.processed_total
              from headrace.stats_v1 s order by s.subscription) v) as subscriptions,
       (select json_agg(row_to_json(l)) from (
            select l.worker, count(*) as leases, sum(l.parts) as keys, sum(l.events) as events,
                   extract(epoch from min(l.expires_at) - clock_timestamp())::float8 as ends_in
              from headrace.leases l where l.purpose = 'work' group by l.worker) l) as leases,
       (select json_agg(row_to_json(w)) from (
            select w.name, extract(epoch from clock_timestamp() - w.beat_at)::float8 as beat_seconds
              from headrace.workers w) w) as workers,
       (select json_agg(row_to_json(f)) from (
            select s.name as subscription, p.key, f.position, f.state, f.error_type, f.attempts,
                   r.backlog - 1 as waiting
              from headrace.failures f
              join headrace.subscriptions s on s.run = f.run
              join headrace.partitions p on p.id = f.part
              left join headrace.ready r on r.part = f.part
             order by f.first_failed_at limit 3) f) as failing;
