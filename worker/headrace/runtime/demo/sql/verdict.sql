-- What the read models must be, computed from the log alone. Each check counts rows that differ, either way.

-- name: check_customers
-- Events, last version and money of every customer; and no event out of its order.
with wanted as (
    select e.stream as customer, count(*) as events, max(e.version) as last_version,
           coalesce(sum(case e.type when 'Payment received' then (e.data->>'cents')::bigint
                                    when 'Refund paid' then -(e.data->>'cents')::bigint end), 0)::bigint as cents,
           0 as disorder
      from headrace.events e group by e.stream)
select (select count(*) from public.customers) as rows,
       (select sum(c.events) from public.customers c)::bigint as events,
       (select count(*) from headrace.events) as wanted_events,
       (select count(*) from (select * from wanted except all table public.customers) x)
     + (select count(*) from (table public.customers except all select * from wanted) y) as differences;

-- name: check_products
-- Items of every product.
with wanted as (
    select substr(t.tag, 9) as product,
           count(*) filter (where e.type = 'Item added') as added,
           count(*) filter (where e.type = 'Item removed') as removed,
           count(*) filter (where e.type = 'Item returned') as returned
      from headrace.events e cross join unnest(e.tags) t(tag) where t.tag like 'product:%' group by t.tag)
select (select count(*) from public.products) as rows,
       (select sum(p.added + p.removed + p.returned) from public.products p)::bigint as events,
       (select sum(w.added + w.removed + w.returned) from wanted w)::bigint as wanted_events,
       (select count(*) from (select * from wanted except all table public.products) x)
     + (select count(*) from (table public.products except all select * from wanted) y) as differences;

-- name: check_cash_book
-- Every payment with the balance after it, in the order of the log.
with paid as (
    select e.position,
           case e.type when 'Refund paid' then -1 else 1 end * (e.data->>'cents')::bigint as cents
      from headrace.events e where e.type in ('Payment received', 'Refund paid')),
wanted as (
    select p.position, p.cents, (sum(p.cents) over (order by p.position))::bigint as balance from paid p)
select (select count(*) from public.cash_book) as rows,
       (select count(*) from public.cash_book) as events,
       (select count(*) from paid) as wanted_events,
       (select count(*) from (select * from wanted except all table public.cash_book) x)
     + (select count(*) from (table public.cash_book except all select * from wanted) y) as differences;

-- name: check_by_stream
-- Events and last version of every stream; and no event out of its order.
with wanted as (
    select e.stream, count(*) as events, max(e.version) as last_version, 0 as disorder
      from headrace.events e group by e.stream)
select (select count(*) from public.by_stream) as rows,
       (select sum(s.events) from public.by_stream s)::bigint as events,
       (select count(*) from headrace.events) as wanted_events,
       (select count(*) from (select * from wanted except all table public.by_stream) x)
     + (select count(*) from (table public.by_stream except all select * from wanted) y) as differences;

-- name: check_by_day
-- Events of every day and type.
with wanted as (
    select to_char(e.recorded_at at time zone 'UTC', 'YYYY-MM-DD') as day, e.type, count(*) as events
      from headrace.events e group by 1, 2)
select (select count(*) from public.by_day) as rows,
       (select sum(d.events) from public.by_day d)::bigint as events,
       (select count(*) from headrace.events) as wanted_events,
       (select count(*) from (select * from wanted except all table public.by_day) x)
     + (select count(*) from (table public.by_day except all select * from wanted) y) as differences;

-- name: check_by_type
-- Events, first and last position of every type.
with wanted as (
    select e.type, count(*) as events, min(e.position) as first_position, max(e.position) as last_position,
           0 as disorder
      from headrace.events e group by e.type)
select (select count(*) from public.by_type) as rows,
       (select sum(t.events) from public.by_type t)::bigint as events,
       (select count(*) from headrace.events) as wanted_events,
       (select count(*) from (select * from wanted except all table public.by_type) x)
     + (select count(*) from (table public.by_type except all select * from wanted) y) as differences;

-- name: mailed_events
-- What must have been mailed, in the order of each stream.
select e.stream, e.version, e.event_id from headrace.events e where e.type = $1 order by e.position;
