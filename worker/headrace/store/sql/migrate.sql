-- name: migration_lock
-- One migrator at a time, whatever starts it; released with the transaction.
select pg_advisory_xact_lock(hashtextextended('headrace migrate ' || $1, 0));

-- name: migration_schema_exists
-- A role without CREATE on the database may still migrate a schema that was made for it.
select exists (select from pg_namespace where nspname = $1);

-- name: migration_schema
-- The room of all tables and functions.
create schema {{schema}};

-- name: migration_table
-- What was applied, and a checksum that shows an edited file.
create table if not exists headrace.migrations (
    number int primary key,
    name text not null,
    checksum text not null,
    applied_at timestamptz not null default clock_timestamp()
);

-- name: migrations_applied
-- What this database has.
select number, name, checksum from headrace.migrations order by number;

-- name: migration_record
-- Written in the transaction of the migration itself.
insert into headrace.migrations (number, name, checksum) values ($1, $2, $3);

-- name: schema_relation
-- Null when nothing was ever migrated here, or when this role may not look into the schema.
select to_regclass('headrace.migrations')::oid::bigint;

-- name: grants
-- What the statements of workers and commands do, and no more; stats_v1 is for people and dashboards.
grant usage on schema {{schema}} to {{role}};
grant select on headrace.migrations, headrace.stats_v1 to {{role}};
grant insert on headrace.audit to {{role}};
grant select, insert on headrace.events to {{role}};
grant select, insert, delete on headrace.inbox to {{role}};
grant select, insert, update on headrace.counters, headrace.cursors, headrace.sources, headrace.subscriptions,
    headrace.touches to {{role}};
grant select, insert, update, delete on headrace.failures, headrace.leases, headrace.partitions, headrace.ready,
    headrace.workers to {{role}};
grant usage on sequence headrace.runs to {{role}};
grant select on sequence headrace.events_position_seq to {{role}};
grant execute on all functions in schema {{schema}} to {{role}};
