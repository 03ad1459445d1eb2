-- What people should know of somebody else's event table, in words: status tells it.

alter table headrace.sources add column notes text[] not null default '{}';
