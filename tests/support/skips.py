"""Skips that nobody overlooks: counted by reason at the end of a run, and failures where everything must run.

Set HEADRACE_REQUIRE_ALL=1, as continuous integration does, and a skip becomes a failure.
"""

import os
from collections import Counter
from collections.abc import Generator

import pytest


def all_required() -> bool:
    """Return whether this run must not skip anything."""
    return os.environ.get("HEADRACE_REQUIRE_ALL", "") not in ("", "0")


class SkipReport:
    """Pytest hooks, registered by the conftest."""

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Turn the skip of a test into a failure where everything is required."""
        report = yield
        if report.skipped and not hasattr(report, "wasxfail") and all_required():
            report.outcome = "failed"
            report.longrepr = f"skipped, but HEADRACE_REQUIRE_ALL is set: {skip_reason(report)}"
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Do the same for a module that skips itself."""
        report = yield
        if report.skipped and all_required():
            report.outcome = "failed"
            report.longrepr = f"skipped, but HEADRACE_REQUIRE_ALL is set: {skip_reason(report)}"
        return report

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what was skipped and why, most frequent reason first."""
        reports = [report for report in terminalreporter.stats.get("skipped", []) if not hasattr(report, "wasxfail")]
        reasons = Counter(skip_reason(report) for report in reports)
        for reason, count in reasons.most_common():
            terminalreporter.write_line(f"skipped: {count} because {reason}", yellow=True)
        if not reasons:
            terminalreporter.write_line("skipped: 0")


def skip_reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Return the bare reason of a skip."""
    longrepr = report.longrepr
    text = longrepr[2] if isinstance(longrepr, tuple) else str(longrepr)
    return text.removeprefix("Skipped: ")
