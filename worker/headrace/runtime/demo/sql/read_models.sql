-- The read models of the demonstration and the statements of its subscribers.

-- name: create_customers
-- `disorder` counts events that did not come right after the one before: it must stay zero.
create table if not exists public.customers (
    customer text primary key,
    events bigint not null,
    last_version int not null,
    cents bigint not null,
    disorder int not null
);

-- name: count_customer
-- One event of one customer.
insert into public.customers as c (customer, events, last_version, cents, disorder)
values ($1, 1, $2, $3, case when $2 = 1 then 0 else 1 end)
on conflict (customer) do update set
    events = c.events + 1, last_version = excluded.last_version, cents = c.cents + excluded.cents,
    disorder = c.disorder + case when excluded.last_version = c.last_version + 1 then 0 else 1 end;

-- name: create_products
-- What was put into carts, taken out again, and sent back.
create table if not exists public.products (
    product text primary key,
    added bigint not null,
    removed bigint not null,
    returned bigint not null
);

-- name: count_product
-- A batch of one product, already added up.
insert into public.products as p (product, added, removed, returned) values ($1, $2, $3, $4)
on conflict (product) do update set
    added = p.added + excluded.added, removed = p.removed + excluded.removed, returned = p.returned + excluded.returned;

-- name: create_cash_book
-- The order matters here: each balance stands on the one before.
create table if not exists public.cash_book (
    position bigint primary key,
    cents bigint not null,
    balance bigint not null
);

-- name: book
-- One payment, with the balance after it.
insert into public.cash_book (position, cents, balance)
select $1, $2, $2 + coalesce((select b.balance from public.cash_book b order by b.position desc limit 1), 0);

-- name: create_by_stream
-- `disorder` counts events that did not come right after the one before: it must stay zero.
create table if not exists public.by_stream (
    stream text primary key,
    events bigint not null,
    last_version int not null,
    disorder int not null
);

-- name: count_stream
-- One event of one stream.
insert into public.by_stream as s (stream, events, last_version, disorder)
values ($1, 1, $2, case when $2 = 1 then 0 else 1 end)
on conflict (stream) do update set
    events = s.events + 1, last_version = excluded.last_version,
    disorder = s.disorder + case when excluded.last_version = s.last_version + 1 then 0 else 1 end;

-- name: create_by_day
-- What happened how often on which day.
create table if not exists public.by_day (
    day text,
    type text,
    events bigint not null,
    primary key (day, type)
);

-- name: count_day
-- A batch of one day and type, already added up.
insert into public.by_day as d (day, type, events) values ($1, $2, $3)
on conflict (day, type) do update set events = d.events + excluded.events;

-- name: create_by_type
-- Where each type came first and last; `disorder` counts batches that came after a later one.
create table if not exists public.by_type (
    type text primary key,
    events bigint not null,
    first_position bigint not null,
    last_position bigint not null,
    disorder int not null
);

-- name: count_type
-- A batch of one type, already added up.
insert into public.by_type as t (type, events, first_position, last_position, disorder) values ($1, $2, $3, $4, 0)
on conflict (type) do update set
    events = t.events + excluded.events, last_position = excluded.last_position,
    disorder = t.disorder + case when excluded.first_position > t.last_position then 0 else 1 end;
