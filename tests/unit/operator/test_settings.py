"""The operator's settings come from its environment, are checked, and do not change; the process does not pretend."""

import pytest
from pydantic import ValidationError

import headrace_operator
from headrace_operator.__main__ import main
from headrace_operator.settings import OperatorSettings


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start every test without settings in the environment."""
    for field in OperatorSettings.model_fields:
        monkeypatch.delenv(f"HEADRACE_OPERATOR_{field.upper()}", raising=False)


def test_defaults_watch_the_whole_cluster() -> None:
    """Nothing need be set: the operator then watches every namespace."""
    settings = OperatorSettings()

    assert settings.namespaces == ()
    assert (settings.metrics_port, settings.log_level, settings.lease_name) == (9090, "info", "headrace-operator")


def test_the_environment_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every field has a variable; namespaces are separated by commas, blanks do not count."""
    monkeypatch.setenv("HEADRACE_OPERATOR_NAMESPACES", "shop, billing,")
    monkeypatch.setenv("HEADRACE_OPERATOR_METRICS_PORT", "0")
    monkeypatch.setenv("HEADRACE_OPERATOR_LOG_LEVEL", "debug")
    monkeypatch.setenv("HEADRACE_OPERATOR_LEASE_NAMESPACE", "ops")

    settings = OperatorSettings()

    assert settings.namespaces == ("shop", "billing")
    assert (settings.metrics_port, settings.log_level, settings.lease_namespace) == (0, "debug", "ops")


@pytest.mark.parametrize(
    ("field", "value"),
    [("NAMESPACES", "Shop"), ("LEASE_NAME", "a_b"), ("METRICS_PORT", "65536"), ("LOG_LEVEL", "loud")],
)
def test_a_wrong_value_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], field: str, value: str
) -> None:
    """A value that cannot work is a usage error that names the field."""
    monkeypatch.setenv(f"HEADRACE_OPERATOR_{field}", value)

    with pytest.raises(ValidationError, match=field.lower()):
        OperatorSettings()
    assert main() == 2
    assert field.lower() in capsys.readouterr().err


def test_settings_do_not_change() -> None:
    """What was read at the start holds to the end."""
    with pytest.raises(ValidationError, match="frozen"):
        OperatorSettings().log_level = "debug"  # type: ignore[misc]


def test_the_process_says_that_it_does_nothing_yet(capsys: pytest.CaptureFixture[str]) -> None:
    """An operator without controllers ends with an error rather than look alive."""
    assert main() == 4
    assert headrace_operator.__version__ in capsys.readouterr().err
