"""What `headrace failures list` shows of an error in one line."""

import pytest
from pydantic import BaseModel, ValidationError

from headrace.cli.failures import brief


class Counted(BaseModel):
    """An event with a field."""

    pieces: int


def test_of_a_validation_error_the_first_field_is_named() -> None:
    """Its first line only counts the errors: the field and what is wrong with it stand beside it."""
    with pytest.raises(ValidationError) as caught:
        Counted.model_validate({})

    assert brief(str(caught.value)).startswith("1 validation error for Counted: pieces Field required")


@pytest.mark.parametrize(
    ("error", "line"),
    [
        ("boom", "boom"),
        ("\nboom\ntwo lines", "boom"),
        ("", ""),
        ("2 validation errors for X", "2 validation errors for X"),
    ],
)
def test_of_any_other_error_the_first_line(error: str, line: str) -> None:
    """One line is enough; the whole text is in `headrace failures show`."""
    assert brief(error) == line
