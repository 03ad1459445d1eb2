-- What is done to the server before a measurement, and asked of it for the report.

-- name: tidy
-- The state of a database that autovacuum has had time for.
vacuum (analyze);

-- name: checkpoint
-- Writes of preparing are on the disk before the clock starts.
checkpoint;

-- name: version
-- For the report.
select current_setting('server_version');
