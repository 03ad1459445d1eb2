-- Which declaration of a subscription is in charge, and which ones were before it: two versions of an app that want
-- different events must not route and handle side by side.

alter table headrace.subscriptions add column declared text not null default '';
alter table headrace.subscriptions add column declared_before text[] not null default '{}';
alter table headrace.workers add column declared text[] not null default '{}';
