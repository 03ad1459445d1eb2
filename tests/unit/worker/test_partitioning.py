"""Partitioners and key checks: the same key everywhere, or a message that names the fix."""

import os
import subprocess
import sys
from hashlib import sha256
from typing import Any

import pytest

from headrace.domain.errors import BadDeclaration, KeyNotMade
from headrace.domain.event import Event
from headrace.domain.ids import PartitionKey, Position
from headrace.partitioning.hashing import bucket_of, text_digest
from headrace.partitioning.keys import (
    MAX_BUCKETS,
    Bucket,
    Hashed,
    Partitioner,
    PartitionerKind,
    PartitionerSpec,
    Stream,
    Tag,
    checked_key,
    describe,
    key_of,
    spec_of,
)


def an_event(stream: str = "order-1", tags: tuple[str, ...] = ()) -> Event[Any]:
    """Return an event of which only stream and tags matter."""
    return Event(position=Position(7), stream=stream, version=1, type="Moved", raw_data="{}", tags=tags)


class ByFirstLetter:
    """A partitioner in Python."""

    def key(self, event: Event[Any]) -> str | None:
        """Return the first letter of the stream; nothing for an empty one."""
        return event.stream[0] if event.stream else None


class Returning:
    """A partitioner that hands out whatever it was given, or raises it."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def key(self, event: Event[Any]) -> str | None:
        """Return or raise the answer."""
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer  # type: ignore[no-any-return]


def test_stream_is_its_own_key() -> None:
    """PAR-6: the key of Stream() is the stream, byte for byte, the empty one too."""
    for stream in ("order-1", "A", "a", "", "é", "e\u0301", "שלום", "🦊"):
        assert Stream().key(an_event(stream)) == stream


def test_tag_prefix_is_exact() -> None:
    """PAR-6: `course` takes `course:…` only, not `courseware:7`, `Course:7`, `course` or `x:course:7`."""
    tags = ("courseware:7", "Course:7", "course", "x:course:7", "cours:e")

    assert Tag("course").key(an_event(tags=tags)) is None
    assert Tag("course").key(an_event(tags=(*tags, "course:7"))) == "7"


def test_tag_key_is_what_follows_the_first_colon_after_the_prefix() -> None:
    """The rest of a tag is the key whatever it holds, nothing included."""
    assert Tag("course").key(an_event(tags=("course:a:b c",))) == "a:b c"
    assert Tag("course").key(an_event(tags=("course:",))) == ""
    assert Tag("org:course").key(an_event(tags=("org:course:9", "org:1"))) == "9"


def test_empty_tag_prefix_matches_nothing() -> None:
    """PAR-6: an empty prefix does not match all tags, not even one that begins with a colon."""
    assert Tag("").key(an_event(tags=("course:7", ":7", ""))) is None


def test_first_tag_in_sorted_order_counts() -> None:
    """Several matching tags: the first by code point, whatever order they were stored in."""
    tags = ("course:b", "course:a", "course:B", "course:é", "course:\uffee", "course:🦊")

    assert Tag("course").key(an_event(tags=tags)) == "B"
    assert Tag("course").key(an_event(tags=tags[::-1])) == "B"
    # UTF-16 order would put the four-byte character first.
    assert Tag("course").key(an_event(tags=("course:🦊", "course:\uffee"))) == "\uffee"


def test_event_without_tags_is_not_for_a_tag_subscriber() -> None:
    """No tag, and a NULL among the tags of somebody else's table: no key, no error."""
    hostile: Any = (None, "", "other:1")

    assert Tag("course").key(an_event()) is None
    assert Tag("course").key(an_event(tags=hostile)) is None


@pytest.mark.parametrize("prefix", ["nul\0", "lone\ud800", 7, None])
def test_tag_prefix_must_be_storable_text(prefix: Any) -> None:
    """A prefix that no tag can hold is refused where it is declared."""
    with pytest.raises(BadDeclaration, match="prefix"):
        Tag(prefix)


def test_bucket_makes_at_most_n_keys() -> None:
    """PAR-6: bucket(16) gives keys "0" to "15" and, over many streams, all of them."""
    keys = {Bucket(Stream(), 16).key(an_event(f"order-{number}")) for number in range(1000)}

    assert keys == {str(number) for number in range(16)}


def test_bucket_is_the_documented_arithmetic() -> None:
    """First 8 bytes of SHA-256, unsigned, big-endian, mod n; values that will never change."""
    for text in ("order-1", "", "é", "e\u0301", "שלום", "🦊"):
        number = int(sha256(text.encode("utf-8")).hexdigest()[:16], 16)
        assert bucket_of(text, 1000) == number % 1000

    assert bucket_of("order-1", 1000) == 396
    assert any(sha256(f"{n}".encode()).digest()[0] >= 0x80 for n in range(10)), "unsigned matters"


def test_hashed_takes_any_length() -> None:
    """A key of a million characters becomes 64 hex digits; look-alikes stay apart."""
    assert Hashed(Stream()).key(an_event("x" * 1_000_000)) == sha256(b"x" * 1_000_000).hexdigest()
    assert Hashed(Stream()).key(an_event("é")) != Hashed(Stream()).key(an_event("e\u0301"))
    assert Hashed(Stream()).key(an_event("nul\0 is hashed as well")) is not None


def test_nothing_inside_is_nothing_outside() -> None:
    """An event that the inner partitioner passes over is passed over by Bucket and Hashed."""
    assert Bucket(Tag("course"), 4).key(an_event()) is None
    assert Hashed(Tag("course")).key(an_event()) is None
    assert Hashed(Bucket(Tag("course"), 4)).key(an_event(tags=("course:7",))) == text_digest(str(bucket_of("7", 4)))


def test_keys_do_not_depend_on_the_process() -> None:
    """Two interpreters with different hash seeds make the same bucket and digest (E-L44)."""
    code = (
        "from headrace.partitioning.hashing import *;"
        "print([(bucket_of(t, 97), text_digest(t)) for t in ('order-1', '\\u00e9', 'e\\u0301', '\\U0001f98a')])"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code], env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }

    assert len(outputs) == 1


@pytest.mark.parametrize("n", [0, -1, MAX_BUCKETS + 1, 1.5, True, "16", None])
def test_number_of_buckets_is_checked(n: Any) -> None:
    """A number of buckets that makes no sense is refused where it is declared."""
    with pytest.raises(BadDeclaration, match="number of buckets"):
        Bucket(Stream(), n)


@pytest.mark.parametrize("inner", [Stream, "stream", None, object()])
def test_inner_partitioner_is_checked(inner: Any) -> None:
    """What has no key(event), and a class in place of its object, is refused where it is declared."""
    with pytest.raises(BadDeclaration, match="inner partitioner"):
        Bucket(inner, 4)
    with pytest.raises(BadDeclaration, match="inner partitioner"):
        Hashed(inner)


def test_built_in_partitioners_describe_themselves() -> None:
    """The spec carries all that the store needs, nested ones too."""
    spec = spec_of(Hashed(Bucket(Tag("course"), 64)))

    assert spec == PartitionerSpec(
        PartitionerKind.HASHED,
        of=PartitionerSpec(
            PartitionerKind.BUCKET, buckets=64, of=PartitionerSpec(PartitionerKind.TAG, prefix="course")
        ),
    )
    assert spec_of(Stream()) == PartitionerSpec(PartitionerKind.STREAM)


def test_python_partitioner_is_not_pushed_down() -> None:
    """A partitioner in Python has no spec, nor has a built-in one around it, nor a subclass of a built-in one."""

    class Shouting(Stream):
        def key(self, event: Event[Any]) -> str | None:
            return event.stream.upper()

    for partitioner in (ByFirstLetter(), Bucket(ByFirstLetter(), 4), Hashed(ByFirstLetter()), Shouting()):
        assert spec_of(partitioner) is None
    assert Bucket(Shouting(), 4).spec() is None


def test_partitioners_are_described_in_a_line() -> None:
    """The description names built-in ones as they are written, others by module and class."""
    assert describe(None) == ""
    assert describe(Stream()) == "Stream()"
    assert describe(Bucket(Tag("course"), 64)) == "Bucket(Tag('course'), 64)"
    assert describe(Hashed(ByFirstLetter())).endswith(".ByFirstLetter)")


def test_partitioners_are_values() -> None:
    """Equal by content, hashable, immutable."""
    assert Bucket(Tag("a"), 4) == Bucket(Tag("a"), 4)
    assert len({Stream(), Stream(), Tag("a"), Tag("b")}) == 3
    with pytest.raises(AttributeError):
        Tag("a").prefix = "b"  # type: ignore[misc]
    assert isinstance(ByFirstLetter(), Partitioner)


@pytest.mark.parametrize("key", ["", "a", "A", "שלום", "🦊" * 250, "x" * 1000, "#", "a:b", " "])
def test_storable_keys_pass(key: str) -> None:
    """Empty, right-to-left, four-byte keys and one of exactly 1,000 bytes are keys."""
    checked = checked_key(key)

    assert isinstance(checked, PartitionKey)
    assert checked == key


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("x" * 1001, r"1,001 UTF-8 bytes.*Hashed\("),
        ("🦊" * 250 + "é", r"1,002 UTF-8 bytes.*Hashed\("),
        ("a\0b", "NUL"),
        ("a\ud800", "surrogate"),
        (7, r"returned int.*str\("),
        (b"bytes", "returned bytes"),
    ],
)
def test_unstorable_keys_are_refused_with_the_fix(key: Any, message: str) -> None:
    """Too long, NUL, lone surrogates, no text: KeyNotMade with the fix, in text that can be stored."""
    with pytest.raises(KeyNotMade, match=message) as caught:
        checked_key(key)

    text = str(caught.value)
    assert "\0" not in text
    assert text.encode()
    assert len(text) < 300


def test_key_of_names_the_event() -> None:
    """A key that cannot be made: position, type and fix, with the partitioner's own error as the cause."""
    broken = KeyError("course")

    with pytest.raises(KeyNotMade, match=r"position 7 of type 'Moved'.*Returning raised KeyError: 'course'") as caught:
        key_of(Returning(broken), an_event())
    assert caught.value.__cause__ is broken
    for answer in (7, "x" * 2000, "\0"):
        with pytest.raises(KeyNotMade, match=r"position 7 of type 'Moved'"):
            key_of(Returning(answer), an_event())
    with pytest.raises(KeyNotMade, match=r"position 7.*returned int"):
        key_of(Hashed(Returning(7)), an_event())
    with pytest.raises(KeyNotMade, match=r"position 7.*surrogate"):
        key_of(Bucket(Returning("\ud800"), 4), an_event())


def test_key_of_survives_an_error_that_cannot_be_printed() -> None:
    """An exception whose text raises still gives a message that names the event."""

    class Unprintable(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    with pytest.raises(KeyNotMade, match=r"position 7.*Unprintable;"):
        key_of(Returning(Unprintable()), an_event())


def test_key_of_does_not_take_a_stop_for_a_bad_key() -> None:
    """What ends a process (KeyboardInterrupt, SystemExit) passes through."""
    with pytest.raises(KeyboardInterrupt):
        key_of(Returning(KeyboardInterrupt()), an_event())


def test_key_of_passes_none() -> None:
    """None means that the event is not for this subscriber; the empty key does not."""
    assert key_of(Returning(None), an_event()) is None
    assert key_of(Returning(""), an_event()) == PartitionKey("")
