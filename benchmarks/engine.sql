-- What the benchmarks ask of the product's own tables.

-- name: count_left
-- What must be empty when a worker has caught up.
select (select count(*) from headrace.inbox) + (select count(*) from headrace.ready)
     + (select count(*) from headrace.leases) + (select count(*) from headrace.failures);

-- name: count_alive
-- Workers whose newest beat came after the last of them had started, so that each has counted all.
select count(*) from headrace.workers w
 where w.beat_at > (select max(x.started_at) from headrace.workers x) and w.beat_at > clock_timestamp() - 3 * w.beat_every;

-- name: count_unhandled
-- Events that no read model has yet; for a subscription that wants all of them.
select (select count(*) from headrace.events) - (select coalesce(sum(t.events), 0) from totals t);

-- name: append_one
-- What an application does: one event, one commit.
insert into headrace.events (stream, version, type, data) values ($1, $2, $3, $4::jsonb) returning position;

-- name: count_unread
-- Events above the position of the only subscription.
select count(*) from headrace.events e where e.position > (select coalesce(max(c.position), 0) from headrace.cursors c);
