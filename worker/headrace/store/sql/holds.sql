-- Holding one key by its address. Making a partition needs the cursor row lock, whoever makes it.

-- name: hold_cursor_lock
-- A statement of its own: the next one must see what the last router has stored.
select c.run from headrace.cursors c where c.run = $1 for no key update;

-- name: hold_insert
-- A key without a partition is made held, or its next event would make it active.
insert into headrace.partitions (run, key, hold) values ($1, $2, $3) on conflict (run, key) do nothing returning id;

-- name: hold_partition
-- A key that is there.
update headrace.partitions p set hold = $3 where p.run = $1 and p.key = $2 returning p.id;

-- name: hold_ready
-- Not due while it is held; one that is leased leaves its group at the load, or is finished.
update headrace.ready r set due_at = 'infinity' where r.part = $1 and r.lease is null;

-- name: hold_lease
-- Who still works on a held key.
select l.worker from headrace.ready r join headrace.leases l on l.id = r.lease where r.part = $1;

-- name: unhold_partition
-- First the partition row, then ready: a worker that holds the key at this moment locks them in the same order.
update headrace.partitions p set hold = null where p.run = $1 and p.key = $2 and p.hold is not null returning p.id;

-- name: unhold_lock
-- What decides the due time is read after this lock.
select r.part from headrace.ready r where r.part = $1 for update;

-- name: unhold_ready
-- Due now; a key that fails goes back to its own next try, or to waiting for a person.
update headrace.ready r set due_at = coalesce(
        (select coalesce(f.next_retry_at, 'infinity') from headrace.failures f where f.part = r.part),
        clock_timestamp())
 where r.part = $1 and r.lease is null;
