-- name: array_types
-- Types that the driver looks up once per connection. While it does, it sets jit for the whole session, and sets back
-- what it has found: where a transaction of ours has set it aside, that would be left in a session which others share.
select null::int[], null::bigint[], null::uuid[], null::timestamptz[];
