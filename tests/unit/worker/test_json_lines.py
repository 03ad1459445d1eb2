"""Lines of a file become events, or are refused by number; nothing changes on the way."""

import gzip
import hashlib
import io
import json
from datetime import UTC, datetime
from uuid import UUID

import pytest

from headrace.runtime.json_lines import BadLine, Line, derived_id, read_lines, unpacked

GOOD = b'{"stream":"order-1","type":"Order placed","data":{"total":3}}'


def read(text: bytes) -> list[Line]:
    """Return the events of a text."""
    return list(read_lines(unpacked(io.BytesIO(text))))


def test_fields_of_a_line() -> None:
    """Every documented field arrives as the value that an append takes."""
    line = {
        "stream": "order-1",
        "type": "Order  placed ",
        "data": {"a": [1, None]},
        "recorded_at": "2006-06-17T00:00:00.000Z",
        "tags": ["order:1", "x"],
        "metadata": {"who": "me"},
        "event_id": "6f2d0c9e-5d0b-4a58-9a61-6b1f0a4c7e25",
    }
    (found,) = read(json.dumps(line).encode())

    assert (found.number, found.stream, found.event.type) == (1, "order-1", "Order  placed ")
    assert json.loads(found.event.data) == {"a": [1, None]}
    assert found.event.recorded_at == datetime(2006, 6, 17, tzinfo=UTC)
    assert (found.event.tags, found.event.metadata) == (("order:1", "x"), {"who": "me"})
    assert found.event.event_id == UUID("6f2d0c9e-5d0b-4a58-9a61-6b1f0a4c7e25")


@pytest.mark.parametrize(
    "data",
    [
        "1.10",
        "123456789012345678901234567890.123456789012345678901234567890",
        '{"a": 1e400, "b" : [ 1 ,2 ]}',
        "[" * 5000 + "]" * 5000,
        '{"a":' * 2000 + '"}]\\"["' + "}" * 2000,
        "1" * 10_000,
        "null",
        '"x"',
        '"' + "x" * 1_000_000 + '"',
        '{"a":1,"a":2}',
    ],
)
def test_data_is_taken_to_the_last_character(data: str) -> None:
    """Numbers keep all their digits, and depth or length is no reason to refuse: data stays its own text."""
    (line,) = read(b'{"stream":"s","data":' + data.encode() + b' ,"type":"T"}')

    assert line.event.data == data


def test_blank_lines_count_and_are_passed_over() -> None:
    """Line numbers are those of an editor, whatever lies between the events."""
    lines = read(b"\n" + GOOD + b"\n  \r\n" + GOOD)

    assert [line.number for line in lines] == [2, 4]


def test_a_byte_order_mark_is_no_problem() -> None:
    """Some tools open a file with one."""
    assert [line.stream for line in read(b"\xef\xbb\xbf" + GOOD)] == ["order-1"]


def test_id_is_the_running_sha256_up_to_the_end_of_the_line() -> None:
    """Without event_id it comes from all the text up to the line's last character, as the contract says."""
    text = GOOD + b"\n\n" + GOOD + b"\n"
    first, second = read(text)

    assert first.event.event_id == derived_id(hashlib.sha256(GOOD).digest())
    assert second.event.event_id == derived_id(hashlib.sha256(GOOD + b"\n\n" + GOOD).digest())
    assert first.event.event_id is not None
    assert (first.event.event_id.version, first.event.event_id.variant) == (8, "specified in RFC 4122")


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_id_is_the_same_when_the_log_has_grown(end: bytes) -> None:
    """The last line may lack its end until more lines follow: its id must not change by that."""
    short = read(GOOD + end + GOOD)
    grown = read(GOOD + end + GOOD + end + GOOD + end)

    assert [line.event.event_id for line in short] == [line.event.event_id for line in grown[:2]]
    assert len({line.event.event_id for line in grown}) == 3


def test_packed_and_plain_are_the_same_events() -> None:
    """Gzip is known by its first bytes, also when packed in several parts, and gives the same ids."""
    packed = gzip.compress(GOOD + b"\n") + gzip.compress(GOOD + b"\n")

    assert read(packed) == read((GOOD + b"\n") * 2)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"nonsense", "it is not a JSON object"),
        (b"[1]", "it is not a JSON object"),
        (b'{"stream":"s"', "',' was expected at character 14, not the end of the line"),
        (b'{"stream":"s","type":"T","data":{"a":}}', "not JSON"),
        (b'{"stream":"s","type":"T","data":{"a":1}', "not JSON"),
        (b'{"stream":"s","type":"T","data":}', "a value is missing"),
        (b'{"stream":"s","type":"T","data":[NaN]}', "NaN is no number"),
        (b'{"stream":"s","type":"T","data":{"a":"\x01"}}', "not JSON"),
        (b'{"stream":"s","type":"T","data":{}} {}', "something follows"),
        (b'{"stream":"s","type":"T"}', "the field 'data' is missing"),
        (b'{"type":"T","data":{}}', "the field 'stream' is missing"),
        (b'{"stream":"s","data":{}}', "the field 'type' is missing"),
        (b'{"stream":"","type":"T","data":{}}', "stream must be a text"),
        (b'{"stream":7,"type":"T","data":{}}', "stream must be a text that is not empty, not 7"),
        (b'{"stream":"s","stream":"t","type":"T","data":{}}', "'stream' is there twice"),
        (b'{"stream":"s","type":"T","data":{},"recored_at":"x"}', "'recored_at' is no field"),
        (b'{"stream":"s","type":"T","data":{},"recorded_at":"yesterday"}', "recorded_at must be a time"),
        (b'{"stream":"s","type":"T","data":{},"recorded_at":7}', "recorded_at must be a time"),
        (b'{"stream":"s","type":"T","data":{},"tags":"a"}', "tags must be a list of texts"),
        (b'{"stream":"s","type":"T","data":{},"tags":[1]}', "tags must be a list of texts"),
        (b'{"stream":"s","type":"T","data":{},"metadata":[]}', "metadata must be an object"),
        (b'{"stream":"s","type":"T","data":{},"event_id":"7"}', "event_id must be a UUID"),
        (b'{"stream":"s","type":"T","data":{},"event_id":7}', "event_id must be a UUID"),
        (b'{"stream":"\xff","type":"T","data":{}}', "not UTF-8"),
        (b'{"stream":"s","type":"T","data":' + b"[" * 5000, "a bracket is not closed"),
    ],
)
def test_a_bad_line_is_named_by_its_number(line: bytes, problem: str) -> None:
    """What cannot be an event is refused with the number of its line and what is wrong."""
    with pytest.raises(BadLine) as caught:
        read(GOOD + b"\n\n" + line + b"\n" + GOOD)

    assert caught.value.number == 3
    assert problem in caught.value.problem
    assert len(str(caught.value)) < 300


def test_a_damaged_pack_is_an_error_of_its_line() -> None:
    """A .gz that was cut short ends the import with what to do, however much of it was good."""
    with pytest.raises(BadLine, match="damaged or cut short"):
        read(gzip.compress((GOOD + b"\n") * 100)[:-8])


def test_time_without_a_zone_is_utc() -> None:
    """A source that gives no zone means UTC, whatever zone this machine is in."""
    (line,) = read(GOOD[:-1] + b',"recorded_at":"2006-06-17 10:00:00"}')

    assert line.event.recorded_at == datetime(2006, 6, 17, 10, tzinfo=UTC)


def test_exported_facts_of_the_database_are_passed_over() -> None:
    """Position and version are given anew; a log that carries them can be imported."""
    (line,) = read(GOOD[:-1] + b',"position":7,"version":3,"appended_at":"x","commit_id":9}')

    assert line.stream == "order-1"
