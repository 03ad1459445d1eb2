-- Partition keys as SQL expressions over an event row `e` with the columns stream (text) and tags (text[]).
-- Each makes byte for byte what headrace.partitioning makes in Python; null means "not for this subscriber".
-- Every comparison is collate "C", because a mapped column may come with a collation that takes `A` for `a`.

-- name: key_stream
-- The stream itself; the cast takes identifiers of another type in somebody else's table.
(e.stream::text collate "C")

-- name: key_tag
-- What follows `prefix:` in the first such tag in byte order; the empty prefix matches nothing.
(select substr(min(t.tag collate "C"), length({{prefix}}) + 2) from unnest(e.tags) as t (tag)
 where {{prefix}} <> '' and starts_with(t.tag collate "C", {{prefix}} || ':'))

-- name: key_bucket
-- First 8 bytes of the hash as an unsigned number mod n, by halves of 4 bytes since bigint is signed.
(select ((h.high % {{n}} * (4294967296 % {{n}}) + h.low) % {{n}})::text from (
   select ('x' || substr(d.hex, 1, 8))::bit(32)::bigint as high, ('x' || substr(d.hex, 9, 8))::bit(32)::bigint as low
   from (select encode(sha256(convert_to({{of}}, 'UTF8')), 'hex') as hex offset 0) d) h)

-- name: key_hashed
-- The hash of a key of any length as 64 hex digits.
encode(sha256(convert_to({{of}}, 'UTF8')), 'hex')
