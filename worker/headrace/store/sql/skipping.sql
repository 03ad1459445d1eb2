-- A person passes an event over that no key can be made for. Locks in their one order: subscription, then cursor.

-- name: skip_main_lock
-- The subscription, kept as it is until the skip is stored.
select s.run, s.status, s.partitioned from headrace.subscriptions s where s.name = $1 for no key update;

-- name: skip_main_record
-- Who passed what over, and what stood there; the next try of a main that stands in error is now.
with u as (
    update headrace.subscriptions s set retry_at = case s.status when 'error' then clock_timestamp() else s.retry_at end
     where s.run = $1
    returning s.name, jsonb_build_object('status', s.status, 'reason', s.reason, 'position', $3::bigint) as before)
insert into headrace.audit (who, verb, subscription, position, why, before)
select $4, 'skip', u.name, $2::bigint, $5, u.before from u;
