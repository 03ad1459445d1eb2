"""JSON text that jsonb can keep, told apart from text that it cannot, without asking it."""

import json
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.domain.errors import BadInput
from headrace.domain.json_text import RawJson, checked_text, json_text, storable_problem

PLAIN = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
ANY = st.text(st.one_of(st.characters(), st.sampled_from('\x00\\"u0d8cf\ud800\udc00')))


@given(
    st.recursive(st.none() | st.booleans() | st.integers() | PLAIN, lambda v: st.lists(v) | st.dictionaries(PLAIN, v))
)
def test_ordinary_values_come_back(value: object) -> None:
    """Whatever JSON can say without NUL and surrogates passes, and reads back equal."""
    assert json.loads(json_text(value)) == value


@given(ANY)
def test_escapes_are_read_as_json_reads_them(text: str) -> None:
    """Escaped or not, a text is storable exactly when no NUL and no half of a pair is in what it means."""
    escaped = json.dumps(text)
    meant = json.loads(escaped)
    bad = "\x00" in meant or any(0xD800 <= ord(character) <= 0xDFFF for character in meant)
    assert (storable_problem(escaped) is not None) == bad


@pytest.mark.parametrize(
    ("text", "storable"),
    [
        (r'"\u0000"', False), (r'"\\u0000"', True), (r'"\\\u0000"', False), (r'"\ud83d\ude00"', True),
        (r'"\ud83d"', False), (r'"\ude00"', False), (r'"\ude00\ud83d"', False), (r'"\ud83d\ud83d\ude00"', False),
        (r'"\ud83d\\\ude00"', False), (r'"\ud83dx\ude00"', False), (r'"\uD83D\uDE00"', True), ('"\x00"', False),
    ],
)  # fmt: skip
def test_pairs_and_backslashes(text: str, storable: bool) -> None:
    """An escape counts after an even number of backslashes, and a pair only when its halves touch."""
    assert (storable_problem(text) is None) == storable


def test_raw_text_is_taken_as_it_is() -> None:
    """Numbers of a text that is JSON already keep every digit."""
    assert json_text(RawJson('{"a": 1.000}')) == '{"a": 1.000}'


def test_values_with_a_usual_text() -> None:
    """UUIDs become text; what has no JSON form is refused with a hint."""
    assert json_text(UUID(int=1)) == '"00000000-0000-0000-0000-000000000001"'
    with pytest.raises(BadInput, match=r"metadata .* set has no JSON form; give plain values or a pydantic model"):
        json_text({1, 2}, "metadata")


def test_a_value_that_holds_itself_is_refused() -> None:
    """No endless text, and no stack that overflows."""
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(BadInput):
        json_text(loop)


def test_texts_of_names() -> None:
    """Streams, types and tags are texts without NUL and surrogates."""
    assert checked_text("\U0001f600", "the type") == "\U0001f600"
    with pytest.raises(BadInput, match="the type must be a text, not int"):
        checked_text(7, "the type")  # type: ignore[arg-type]
