"""A stable hash of text that PostgreSQL computes identically with its builtin functions.

Python's own ``hash`` differs from process to process, so a key made of it would wander between
workers. Never change what is computed here: keys that are stored in inboxes were made by it.
"""

from hashlib import sha256

from headrace.domain.errors import KeyNotMade

_HASHED_BYTES = 8


def text_digest(text: str) -> str:
    """Return the SHA-256 (FIPS 180-4) of the UTF-8 bytes of ``text`` as 64 lower-case hex digits.

    In SQL: ``encode(sha256(convert_to(text, 'UTF8')), 'hex')``. Texts that look alike but are
    composed of other code points have other digests, on purpose.

    Raises:
        KeyNotMade: ``text`` is not a string, or holds a lone surrogate and so has no UTF-8 form.

    """
    return sha256(_bytes_of(text)).hexdigest()


def bucket_of(text: str, buckets: int) -> int:
    """Return the bucket of ``text``: the first 8 bytes of its SHA-256 as a big-endian unsigned number, mod ``buckets``.

    In SQL, where 64-bit numbers are signed, by halves of 4 bytes: with ``high`` and ``low`` as
    unsigned numbers, ``((high % n) * (2^32 % n) + low) % n`` is the same and stays below 2^63 for
    every ``n`` below 2^31.

    Raises:
        KeyNotMade: as for :func:`text_digest`.

    """
    return int.from_bytes(sha256(_bytes_of(text)).digest()[:_HASHED_BYTES], "big") % buckets


def _bytes_of(text: str) -> bytes:
    if not isinstance(text, str):
        raise KeyNotMade(f"a key must be text, the partitioner returned {type(text).__name__}: return str(...)")
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise KeyNotMade(
            "a key with a lone surrogate has no UTF-8 form: let the partitioner replace it, "
            "for example text.encode(errors='replace').decode()"
        ) from None
