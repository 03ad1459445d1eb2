-- Tables of the partition protocol: who subscribes, how far it is routed, what waits, who works on it.
-- No foreign keys among them: a check per claimed row would lock rows that commands need.

create sequence headrace.runs as int cache 1;

create table headrace.subscriptions (
    id int generated always as identity primary key,
    name text collate "C" not null unique check (length(name) between 1 and 250 and position('#' in name) = 0),
    app text collate "C" not null,
    group_name text collate "C" not null,
    kind text not null check (kind in ('projector', 'reactor', 'saga', 'sink')),
    partitioned boolean not null,
    partitioner text not null default '',
    wanted_types text[],
    wanted_streams text[],
    wanted_tags text[],
    start_from text not null default 'beginning',
    source text,
    remove_idle_after interval,
    run int not null unique default nextval('headrace.runs'),
    status text not null default 'new' check (status in
        ('new', 'booting', 'active', 'paused', 'finished', 'detached', 'error', 'failed', 'resetting')),
    prev_status text,
    epoch bigint not null default 0,
    error_class text,
    reason text,
    retry_at timestamptz,
    tries int not null default 0,
    streak int not null default 0,
    streak_id bigint not null default 0,
    created_at timestamptz not null default clock_timestamp(),
    changed_at timestamptz not null default clock_timestamp(),
    constraint error_says_why check (status <> 'error' or (reason is not null and prev_status is not null))
);

-- How far a subscription is routed. One writer at a time: who holds the row lock.
create table headrace.cursors (
    run int primary key,
    position bigint not null default 0 check (position >= 0),
    boot_target bigint not null default 0,
    routed bigint not null default 0,
    activated bigint not null default 0,
    created bigint not null default 0,
    sweep bigint not null default 0
) with (fillfactor = 50);

-- Which partitions got work in this minute and the last: a hash sample that halves itself when full.
create table headrace.touches (
    run int primary key,
    minute_at timestamptz not null,
    depth smallint not null default 0,
    sample int[] not null default '{}',
    last_depth smallint not null default 0,
    last_sample int[] not null default '{}'
) with (fillfactor = 50);

create table headrace.partitions (
    id bigint generated always as identity primary key,
    run int not null,
    key text collate "C" not null check (octet_length(key) <= 1000),
    position bigint not null default 0,
    hold text,
    touched_at timestamptz not null default clock_timestamp(),
    unique (run, key)
) with (fillfactor = 85);
create index partitions_held on headrace.partitions (run, id) where hold is not null;

create table headrace.inbox (
    part bigint,
    position bigint,
    primary key (part, position)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

create table headrace.ready (
    part bigint primary key,
    run int not null,
    backlog int not null check (backlog >= 0),
    first_pos bigint not null,
    due_at timestamptz not null,
    lease bigint,
    attempts smallint not null default 0,
    takeovers smallint not null default 0
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
create index ready_due on headrace.ready (run, due_at) where lease is null;
create index ready_lease on headrace.ready (lease) where lease is not null;
create index ready_first on headrace.ready (run, first_pos);

create table headrace.leases (
    id bigint primary key,
    run int not null,
    purpose text not null default 'work' check (purpose in ('work', 'setup', 'reset', 'purge')),
    owner uuid not null,
    worker text not null,
    parts int not null,
    events bigint not null,
    acquired_at timestamptz not null default clock_timestamp(),
    expires_at timestamptz not null
);
create index leases_run on headrace.leases (run);
create index leases_expiry on headrace.leases (expires_at);
create unique index leases_single on headrace.leases (run) where purpose <> 'work';

create table headrace.failures (
    part bigint primary key,
    run int not null,
    position bigint not null,
    state text not null check (state in ('backing off', 'parked', 'waiting')),
    attempts int not null check (attempts > 0),
    streak_id bigint not null default 0,
    class text not null,
    error_type text not null,
    error text not null,
    first_failed_at timestamptz not null default clock_timestamp(),
    failed_at timestamptz not null default clock_timestamp(),
    next_retry_at timestamptz,
    worker text not null default ''
);
create index failures_run on headrace.failures (run, state);

create table headrace.counters (
    run int,
    slot smallint check (slot between 0 and 31),
    handled bigint not null default 0,
    drained bigint not null default 0,
    skipped bigint not null default 0,
    parked bigint not null default 0,
    busy_us bigint not null default 0,
    primary key (run, slot)
) with (fillfactor = 50);

create table headrace.workers (
    id uuid primary key,
    app text collate "C" not null,
    name text not null,
    version text not null,
    subscriptions text[] not null,
    lanes int not null check (lanes > 0),
    started_at timestamptz not null default clock_timestamp(),
    beat_at timestamptz not null default clock_timestamp(),
    beat_every interval not null,
    source text,
    horizon bigint,
    head bigint,
    held_by text,
    held_since timestamptz,
    routing text[] not null default '{}'
);

create table headrace.audit (
    id bigint generated always as identity primary key,
    at timestamptz not null default clock_timestamp(),
    who text not null,
    verb text not null,
    subscription text not null,
    key text,
    position bigint,
    why text not null default '',
    before jsonb
);

-- Other people's event tables that workers of this database read, so that statistics can count them too.
create table headrace.sources (
    name text primary key,
    relation text not null,
    sequence text not null,
    exact boolean not null,
    events_sql text not null
);
