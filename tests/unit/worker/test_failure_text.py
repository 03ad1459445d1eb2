"""Text of errors: storable, showable, bounded, without secrets, and made of anything."""

import time
from typing import Any, NoReturn

import pytest

from headrace.failures.text import MAX_BYTES, safe_text, text_of


class ShopError(Exception):
    """A user's own exception."""


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    """Return the error with a traceback, as a handler would raise it."""
    try:
        raise error from cause
    except BaseException as caught:  # noqa: BLE001 - any error is what this is about
        return caught


def test_error_text_names_type_message_and_place() -> None:
    """The class with its module (none for a builtin), the message, and the end of the traceback."""
    text = text_of(raised(ShopError("no order 17")))

    assert text.type == f"{__name__}.ShopError"
    assert text.message == "no order 17"
    assert text.text.startswith(f"{__name__}.ShopError: no order 17\n\n")
    assert "in raised" in text.text
    assert text_of(KeyError("x")).type == "KeyError"
    assert text_of(ShopError()).text.startswith(f"{__name__}.ShopError\n")


def test_chained_causes_are_stored_whole() -> None:
    """STA-2: an error of 600 characters with 3 chained causes is stored and shown whole."""
    error: BaseException = ShopError("root")
    for number in range(3):
        error = raised(ShopError(f"cause {number} " + "x" * 150), error)
    message = "top " + "y" * 596
    text = text_of(raised(ShopError(message), error))

    assert text.message == message
    assert "left out" not in text.text
    for number in range(3):
        assert f"cause {number}" in text.text
    assert "root" in text.text


def test_arguments_are_not_stored() -> None:
    """STA-2: values of arguments and locals never get into the text."""

    def charge(card_number: str) -> NoReturn:
        raise ShopError("refused")

    with pytest.raises(ShopError) as caught:
        charge("4111" * 2)  # not as one literal: a source line is in the text

    assert "in charge" in text_of(caught.value).text
    assert "41114111" not in text_of(caught.value).text


def test_unstorable_characters_are_shown_by_number() -> None:
    """NUL, lone surrogates and terminal codes cannot be stored or shown as they are; tab and line feed can."""
    assert safe_text("a\0b\ud800c\x1b[31m\x9b\x7f\r\t\n🦊é") == "a\\x00b\\ud800c\\x1b[31m\\x9b\\x7f\\x0d\t\n🦊é"


def test_long_text_keeps_head_and_tail() -> None:
    """Of a long text both ends stay, its length is said, and the limit in bytes holds at every cut."""
    for filler in ("x", "é", "🦊", "\0"):
        for size in range(MAX_BYTES - 10, MAX_BYTES + 10, 3):
            text = safe_text("HEAD" + filler * size + "TAIL")
            needed = 8 + size * max(len(filler.encode()), 4 if filler == "\0" else 1)

            assert text.startswith("HEAD")
            assert text.endswith("TAIL")
            assert len(text.encode()) <= MAX_BYTES
            assert (f"the whole has {size + 8:,} characters" in text) == (needed > MAX_BYTES)


def test_short_text_stays_as_it_is() -> None:
    """What fits is not touched."""
    assert safe_text("x" * MAX_BYTES) == "x" * MAX_BYTES
    assert safe_text("") == ""


def test_tiny_limit_holds() -> None:
    """A limit smaller than the note about what was left out is kept all the same."""
    for limit in range(80):
        assert len(safe_text("🦊" * 100, limit).encode()) <= limit


def test_whole_error_is_bounded() -> None:
    """A message of a megabyte, deep recursion and many causes stay within 8 kB, message and place in it."""

    def deep(number: int) -> NoReturn:
        if number == 0:
            raise ShopError("HEAD" + "🦊" * 1_000_000 + "TAIL")
        deep(number - 1)

    with pytest.raises(ShopError) as caught:
        deep(500)
    error: BaseException = caught.value
    for number in range(200):
        error = raised(ShopError(f"cause {number}"), error)

    for each in (caught.value, error):
        text = text_of(each)
        assert len(text.text.encode()) <= MAX_BYTES
        assert text.text.startswith(f"{__name__}.ShopError: {text.message[:4]}")
    assert text_of(caught.value).message.endswith("TAIL")
    assert "cause 199" in text_of(error).text[-200:]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("postgres://user:pw@host/db", "postgres://user:***@host/db"),
        ("cannot reach postgresql://u:p%40ss@db.example:5432/shop?x=1 now", None),
        ("postgres://u:p@ss@host:5432/db", "postgres://u:***@host:5432/db"),
        ("postgres://u:pa/ss@host", "postgres://u:***@host"),
        ("postgres://u:12345@host", "postgres://u:***@host"),
        ("amqp://:secret@broker", "amqp://:***@broker"),
        ('{"dsn":"postgres://u:pw@h/db","mail":"a@b"}', '{"dsn":"postgres://u:***@h/db","mail":"a@b"}'),
        ("host=db password=pw user=u", "host=db password=*** user=u"),
        ("host=db password='p w' user=u", "host=db password=*** user=u"),
        ("db_password: hunter2, next", "db_password: ***, next"),
        ("PGPASSWORD=pw psql", "PGPASSWORD=*** psql"),
        ('{"password": "pw", "api_key": "k", "token": "t"}', '{"password": ***, "api_key": ***, "token": ***}'),
        ("https://x.example/?access_token=abc&y=1", "https://x.example/?access_token=***&y=1"),
        ("Authorization: Bearer abcdefghijklmnop.qrs", "Authorization: Bearer ***"),
    ],
)
def test_secrets_are_masked(text: str, expected: str | None) -> None:
    """Passwords in connection strings, in key and value pairs and in headers never get into the text."""
    masked = safe_text(text)

    assert masked == expected if expected else "p%40ss" not in masked
    assert safe_text(masked) == masked


@pytest.mark.parametrize(
    "text",
    [
        "http://host:8080/orders?mail=a@b",
        "see https://docs.example:443",
        "Unexpected token: }",
        'password authentication failed for user "shop"',
        "basic authentication failed",
        "10:30@noon",
    ],
)
def test_harmless_text_is_not_masked(text: str) -> None:
    """A port, a word, a time of day are no secrets: the message stays readable."""
    assert safe_text(text) == text


def test_secrets_are_masked_in_tracebacks_and_causes() -> None:
    """The source lines and causes of a traceback are masked like the message."""
    error = raised(ShopError("outer"), raised(ValueError("bad dsn postgres://u:hunter2@h")))

    assert "postgres://u:***@h" in text_of(error).text
    assert "hunter2" not in text_of(error).text


def test_secret_at_the_cut_is_not_halved_into_view() -> None:
    """A password that lies where the text is cut is masked or dropped, never shown in part."""
    secret = "postgres://user:" + "hunter2" * 20 + "@host"
    for offset in range(0, 2 * len(secret), 7):
        for edge in (MAX_BYTES // 3, 2 * MAX_BYTES, 100_000 - 2 * MAX_BYTES, 100_000 - 2 * MAX_BYTES // 3):
            before = "x" * (edge - offset) + " "
            text = before + secret + " " + "y" * (100_000 - len(before))

            assert "hunter2" not in safe_text(text)


def test_text_of_secrets_says_that_it_was_shortened() -> None:
    """A long text that masking makes short still tells that something was left out."""
    text = safe_text(("password=" + "y" * 500 + " ") * 200)

    assert "the whole has 102,000 characters" in text
    assert "yyy" not in text.split("left out")[0]


def test_hostile_exceptions_still_give_a_text() -> None:
    """An exception whose text, notes or cause are broken is reported, never raised."""

    class Unprintable(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    class Odd(Exception):
        __notes__: Any = 7

        def __str__(self) -> Any:
            return 7  # noqa: PLE0307 - what a broken exception does

    error = raised(Unprintable(), Odd())

    assert "Unprintable" in text_of(error).type
    assert "cannot be made: RuntimeError" in text_of(error).message
    assert "Unprintable" in text_of(error).text
    assert "Odd" in text_of(raised(Odd())).type
    assert text_of(raised(ExceptionGroup("many", [ValueError("\0"), Unprintable()]))).text.isprintable() is False


@pytest.mark.parametrize("unit", ["://a:", "password", "password=   ", "bearer ", "a.", "[Errno ", "token=", "://"])
def test_masking_takes_no_long_time(unit: str) -> None:
    """Text made to be slow for the patterns, a megabyte of it, takes well under a second."""
    start = time.process_time()
    safe_text(unit * (1_000_000 // len(unit)))

    assert time.process_time() - start < 1.0
