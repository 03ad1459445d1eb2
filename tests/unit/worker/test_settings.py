"""What the environment may say, and how a wrong word is answered."""

from typing import Any

import pytest

from headrace.domain.errors import UsageError
from headrace.domain.subscription import StartFrom
from headrace.settings import FIXES, Settings, read_settings, variable


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees the environment that it was started in."""
    for field in Settings.model_fields:
        monkeypatch.delenv(variable(field), raising=False)


def test_names_are_the_published_ones() -> None:
    """Dashboards, charts and scripts rely on these names of variables: none is lost or renamed."""
    published = (
        "DSN APP SUBSCRIBERS GROUP SETUP START_FROM LANES METRICS_PORT LEASE_SECONDS HANDLER_TIMEOUT_SECONDS "
        "SCHEMA LOG_FORMAT LOG_LEVEL POOLER"
    )

    assert {variable(field) for field in Settings.model_fields} == {f"HEADRACE_{name}" for name in published.split()}


def test_defaults() -> None:
    """Without any variable the documented defaults hold."""
    settings = read_settings()

    assert (settings.lanes, settings.metrics_port, settings.lease_seconds) == (1, 9090, 15.0)
    assert (settings.handler_timeout_seconds, settings.schema_name, settings.setup) == (30.0, "headrace", "auto")
    assert (settings.subscribers, settings.group, settings.start_from, settings.pooler) == ((), None, None, False)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("subscribers", " orders , mails,,", ("orders", "mails")),
        ("start_from", "NOW", StartFrom.NOW),
        ("start_from", "beginning", StartFrom.BEGINNING),
        ("start_from", "1204", 1204),
        ("setup", "Manual", "manual"),
        ("pooler", "true", True),
        ("lanes", "4", 4),
        ("lease_seconds", "2.5", 2.5),
        ("schema_name", "My Schema", "My Schema"),
        ("log_format", "JSON", "json"),
        ("lanes", "", 1),
    ],
)
def test_environment_is_read(monkeypatch: pytest.MonkeyPatch, name: str, text: str, value: Any) -> None:
    """A variable's text becomes a typed value; an empty one is as good as none."""
    monkeypatch.setenv(variable(name), text)

    assert getattr(read_settings(), name) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("lanes", "zero"),
        ("lanes", "0"),
        ("metrics_port", "70000"),
        ("lease_seconds", "nan"),
        ("lease_seconds", "0"),
        ("handler_timeout_seconds", "-1"),
        ("setup", "perhaps"),
        ("start_from", "yesterday"),
        ("start_from", "-3"),
        ("log_format", "xml"),
        ("log_level", "loud"),
        ("pooler", "maybe"),
        ("schema_name", "ü" * 40),
    ],
)
def test_bad_value_is_one_message_with_the_fix(monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> None:
    """A value that cannot be used is refused in one line that names the variable and what would do."""
    monkeypatch.setenv(variable(name), text)

    with pytest.raises(UsageError) as caught:
        read_settings()

    assert str(caught.value) == f"the value of {variable(name)} cannot be used: {FIXES[name]}"


def test_options_win_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is given by hand overrides the environment, under a field's own name and under its alias."""
    monkeypatch.setenv("HEADRACE_LANES", "7")
    monkeypatch.setenv("HEADRACE_SCHEMA", "from_environment")

    settings = read_settings({"lanes": 2, "schema_name": "by_hand", "group": None})

    assert (settings.lanes, settings.schema_name) == (2, "by_hand")


def test_bad_option_is_named_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the option is wrong, the message names the option, since that is what must be changed."""
    monkeypatch.setenv("HEADRACE_LANES", "7")

    with pytest.raises(UsageError, match=r"^the value of --lanes \(HEADRACE_LANES\) cannot be used"):
        read_settings({"lanes": 0})


def test_service_link_of_kubernetes_is_no_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Service named headrace-metrics sets HEADRACE_METRICS_PORT=tcp://…; the worker must start all the same."""
    monkeypatch.setenv("HEADRACE_METRICS_PORT", "tcp://10.3.0.7:9090")

    assert read_settings().metrics_port == 9090


def test_password_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """The password of the DSN shows neither in the settings' text nor in the message about another field."""
    monkeypatch.setenv("HEADRACE_DSN", "postgresql://app:s3cret@db/shop")
    shown = repr(read_settings())
    monkeypatch.setenv("HEADRACE_LANES", "none")

    with pytest.raises(UsageError) as caught:
        read_settings()

    assert "s3cret" not in shown + str(caught.value)


def test_missing_dsn_and_app_name_the_fix() -> None:
    """A command that needs a database or an application says how to name one."""
    settings = read_settings()

    with pytest.raises(UsageError, match="HEADRACE_DSN or give --dsn"):
        settings.required_dsn()
    with pytest.raises(UsageError, match="HEADRACE_APP"):
        settings.required_app()
