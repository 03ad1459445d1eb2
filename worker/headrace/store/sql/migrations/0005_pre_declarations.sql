-- Which declaration of a subscription is in charge, and all that there were, in the order in which they were first seen:
-- two versions of an app that want different events must not route and handle side by side.

alter table headrace.subscriptions add column declared text not null default '';
alter table headrace.subscriptions add column declarations text[] not null default '{}';
alter table headrace.workers add column declared text[] not null default '{}';

-- Since when a worker has beaten without a gap: what it says of others' silence counts only from then on.
alter table headrace.workers add column steady_since timestamptz not null default clock_timestamp();
