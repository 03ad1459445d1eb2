-- What people and the operator look at; nothing here is read by workers.

-- The ledger of failing keys in its order, page by page.
create index failures_position on headrace.failures (run, position, part);
