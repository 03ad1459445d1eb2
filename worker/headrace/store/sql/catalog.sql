-- Subscriptions' own rows. Few, and written in short transactions of their own: routing, claims, loads and flushes
-- read them without any lock.

-- name: subscription_insert
-- Declared for the first time. Looked up before, so that a restart draws no run number.
insert into headrace.subscriptions
    (name, app, group_name, kind, partitioned, partitioner, wanted_types, wanted_streams, wanted_tags, start_from,
     source, remove_idle_after, declared, declarations)
select $1::text, $2::text, $3, $4, $5, $6, $7::text[], $8::text[], $9::text[], $10, $11, $12::interval, $13::text,
       array[$13::text]
 where not exists (select from headrace.subscriptions s where s.name = $1::text)
on conflict (name) do nothing;

-- name: subscription_refresh
-- What the code declares now; writes nothing, and so locks nothing, when it is the same. A younger declaration
-- takes charge from an older one; an older one comes back only when no worker declares the younger: the restart of an
-- old worker in the middle of a rolling update must not undo the update, and the way back must not need a person. A
-- worker that has not signed off is dead when it is silent while this one ($14) beats: after an outage all are silent.
update headrace.subscriptions s set
    group_name = $3, kind = $4, partitioner = $6, wanted_types = $7::text[], wanted_streams = $8::text[],
    wanted_tags = $9::text[], start_from = $10, source = $11, remove_idle_after = $12::interval,
    declared = $13, epoch = s.epoch + (s.declared <> $13)::int,
    declarations = case when $13 = any (s.declarations) then s.declarations
                        else array_append(s.declarations, $13) end
 where s.name = $1 and s.app = $2 and s.partitioned = $5
   and (s.group_name, s.kind, s.partitioner, s.wanted_types, s.wanted_streams, s.wanted_tags, s.start_from, s.source,
        s.remove_idle_after, s.declared)
       is distinct from ($3, $4, $6, $7::text[], $8::text[], $9::text[], $10, $11, $12::interval, $13)
   and (s.declared in ('', $13)
        or coalesce(array_position(s.declarations, $13) > array_position(s.declarations, s.declared), true)
        or not exists (
            select from headrace.workers w
             where w.declared[array_position(w.subscriptions, s.name)] = s.declared
               and (w.beat_at > statement_timestamp() - 3 * w.beat_every
                    or not exists (select from headrace.workers me
                                    where me.id = $14 and me.beat_at > statement_timestamp() - 3 * me.beat_every
                                      and me.steady_since < statement_timestamp() - 3 * me.beat_every))));

-- name: subscriptions
-- All, or those of some names.
select s.name, s.app, s.kind, s.group_name, s.partitioned, s.run, s.status, s.epoch, s.prev_status, s.error_class,
       s.reason, s.retry_at, s.tries, s.declared
  from headrace.subscriptions s where $1::text[] is null or s.name = any ($1) order by s.name;

-- name: subscription_lock
-- One subscription, to be changed; by its run, so that a reset in between is seen.
select s.name, s.app, s.kind, s.group_name, s.partitioned, s.run, s.status, s.epoch, s.prev_status, s.error_class,
       s.reason, s.retry_at, s.tries, s.declared, coalesce(s.retry_at <= clock_timestamp(), true) as retry_is_due
  from headrace.subscriptions s where s.run = $1 for no key update;

-- name: subscription_save
-- What a transition of the domain has returned; the database's clock tells the next try.
update headrace.subscriptions s set
    status = $2, epoch = $3, prev_status = $4, error_class = $5, reason = $6, tries = $7,
    retry_at = clock_timestamp() + $8::interval, changed_at = clock_timestamp()
 where s.run = $1;

-- name: cursor_insert
-- Where routing starts, and where a first catch-up ends.
insert into headrace.cursors (run, position, boot_target) values ($1, $2, $3) on conflict (run) do nothing;

-- name: whole_log_insert
-- The one partition of an unpartitioned run and its permanent ready row.
with p as (
    insert into headrace.partitions (run, key, position) values ($1, '', $2)
    on conflict (run, key) do nothing returning id)
insert into headrace.ready (part, run, backlog, first_pos, due_at) select p.id, $1, 0, $2, clock_timestamp() from p;

-- name: activate
-- Booting ends when everything up to the target is handled: a key that backs off is waited for, one that is parked or
-- held is not. One row, however many partitions there are; the offset keeps a probe from becoming a join. The target
-- may have lost its row: then nothing lies between it and the last row below.
update headrace.subscriptions s set status = 'active', epoch = s.epoch + 1, changed_at = clock_timestamp()
  from headrace.cursors c
 where s.run = $1 and s.status = 'booting' and c.run = $1
   and not exists (select from headrace.leases l where l.run = $1)
   and (select e.position from {{events}} e
         where e.position > (select case when b.partitioned then k.position
                                         else (select p.position from headrace.partitions p
                                                where p.run = $1 and p.key = '') end
                               from headrace.subscriptions b join headrace.cursors k on k.run = b.run where b.run = $1)
         order by e.position limit 1) <= c.boot_target is not true
   and (not s.partitioned or (
            select r.part from headrace.ready r
             where r.run = $1 and r.first_pos <= c.boot_target and r.due_at < 'infinity'
               and not exists (select from headrace.failures f
                                where f.part = r.part and f.state <> 'backing off' offset 0)
             order by r.run, r.first_pos limit 1) is null)
returning s.run;

-- name: setup_lease_expired
-- Who was setting up has died: its lease must not keep the next one waiting.
delete from headrace.leases l
 where l.id in (select x.id from headrace.leases x
                 where x.run = $1 and x.purpose = 'setup' and x.expires_at < statement_timestamp()
                   for update skip locked);

-- name: setup_lease
-- The one set-up lease of a run; a unique index makes it single.
insert into headrace.leases (id, run, purpose, owner, worker, parts, events, expires_at)
values ($1, $2, 'setup', $3, $4, 0, 0, clock_timestamp() + $5::interval)
on conflict do nothing returning id;

-- name: caught_up
-- How far a run is with respect to a line, by index probes. What is parked or held is looked through: few keys, and
-- nobody asks this in a loop without pause.
select s.partitioned, v.position, q.first_pos as low,
       coalesce((select e.position from {{events}} e where e.position > v.position
                  order by e.position limit 1) <= $2::bigint, false) as behind,
       coalesce((select r.due_at from headrace.ready r where r.run = $1 and r.lease is null
                  order by r.due_at limit 1) <= statement_timestamp(), false) as due,
       exists (select from headrace.leases l where l.run = $1 and l.purpose = 'work') as leased,
       coalesce((select true from headrace.ready r
                  where r.run = $1 and r.lease is null and r.due_at > statement_timestamp() and r.due_at < 'infinity'
                    and not exists (select from headrace.failures f
                                     where f.part = r.part and f.state <> 'backing off' offset 0)
                  order by r.due_at limit 1), false) as backing_off,
       b.first_pos as parked, b.key as parked_key
  from headrace.subscriptions s
  join headrace.cursors c on c.run = s.run
  left join headrace.partitions w on w.run = s.run and w.key = '' and not s.partitioned
 cross join lateral (select coalesce(w.position, c.position) as position) v
  left join lateral (select r.first_pos from headrace.ready r where r.run = $1
                      order by r.run, r.first_pos limit 1) q on s.partitioned
  left join lateral (
      select x.first_pos, p.key
        from (select f.part, f.position as first_pos from headrace.failures f
               where f.run = $1 and f.state <> 'backing off'
              union all
              select h.part, null from (
                  select h.id as part from headrace.partitions h
                   where (h.run, h.id) > ($1, 0::bigint) and h.run <= $1 and h.hold is not null
                   order by h.run, h.id) h) b
       cross join lateral (
             select coalesce(b.first_pos, r.first_pos) as first_pos from headrace.ready r
              where r.part = b.part and r.lease is null and (b.first_pos is not null or r.due_at = 'infinity')
              limit 1) x
       cross join lateral (select p.key from headrace.partitions p where p.id = b.part limit 1) p
       order by x.first_pos limit 1) b on true
 where s.run = $1;

-- name: caught_up_key
-- The same for one key, $3; a key without a partition has nothing left.
select s.partitioned, v.position, case when s.partitioned then r.first_pos end as low,
       coalesce((select e.position from {{events}} e where e.position > v.position
                  order by e.position limit 1) <= $2::bigint, false) as behind,
       r.lease is null and r.due_at <= statement_timestamp() as due,
       r.lease is not null as leased,
       r.lease is null and r.due_at > statement_timestamp() and not a.aside as backing_off,
       case when a.aside then coalesce(f.position, r.first_pos) end as parked, p.key as parked_key
  from headrace.subscriptions s
  join headrace.cursors c on c.run = s.run
  left join headrace.partitions w on w.run = s.run and w.key = '' and not s.partitioned
  left join headrace.partitions p on p.run = s.run and p.key = $3
 cross join lateral (select coalesce(w.position, c.position) as position) v
  left join lateral (select r.* from headrace.ready r where r.part = p.id limit 1) r on true
  left join lateral (select f.* from headrace.failures f where f.part = p.id limit 1) f on true
 cross join lateral (
      select (r.lease is null and (r.due_at = 'infinity' or f.state <> 'backing off')) is true as aside) a
 where s.run = $1;
