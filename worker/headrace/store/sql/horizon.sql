-- name: horizon_probe
-- Sequence, then holders, each in its own snapshot; rows must be read by a later statement.
select h.sequence, h.cache, h.server, h.vxids, h.pids from headrace.horizon_v1($1::bigint::oid, $2::bigint::oid) h;

-- name: contiguous_from
-- How far rows follow without a hole; bounded, so that a long log costs several short looks.
select coalesce(max(x.position), $1::bigint)
  from (select e.position, e.position - $4::bigint * row_number() over (order by e.position) as start
          from (select e.position from {{events}} e
                 where e.position > $1::bigint and e.position <= $2::bigint
                 order by e.position limit $3::bigint) e) x
 where x.start = $1::bigint;

-- name: horizon_holder
-- Who a holder is; state and start of other roles' sessions need pg_read_all_stats.
select l.pid, p.gid, a.application_name as application, host(a.client_addr) as client, a.state,
       coalesce(a.xact_start, p.prepared) as since,
       extract(epoch from clock_timestamp() - coalesce(a.xact_start, p.prepared))::float8 as age
  from pg_locks l
  left join pg_stat_activity a on a.pid = l.pid
  left join pg_locks x on l.pid is null and x.pid is null and x.locktype = 'transactionid'
                      and x.virtualtransaction = l.virtualtransaction
  left join pg_prepared_xacts p on p.transaction = x.transactionid
 where l.locktype = 'relation' and l.relation in ($2::bigint::oid, $3::bigint::oid) and l.virtualtransaction = $1
 limit 1;

-- name: horizon_settings
-- What makes reading less than exact without any lock showing it, and what this role may see.
select current_setting('synchronous_commit') as synchronous_commit, current_setting('fsync') as fsync,
       pg_has_role('pg_read_all_stats', 'usage') as sees_all,
       (select s.seqcache from pg_sequence s where s.seqrelid = $1::bigint::oid) as cache;

-- name: stored_position
-- Rows that readers have stored, so each was at or below a horizon. A cursor that has routed nothing may be where a
-- person put it, and says nothing; neither does an unpartitioned reader that has not moved from its start.
select greatest(
    (select coalesce(max(c.position), 0) from headrace.cursors c join headrace.subscriptions s on s.run = c.run
      where c.routed > 0 and s.source is not distinct from $1),
    (select coalesce(max(p.position), 0)
       from headrace.subscriptions s join headrace.cursors c on c.run = s.run
       join headrace.partitions p on p.run = s.run and p.key = '' and p.position > c.position
      where not s.partitioned and s.source is not distinct from $1));
