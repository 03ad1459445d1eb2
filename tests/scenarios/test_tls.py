"""TLS to the database, with an authority of our own: all speaks it, and a mistake is one message with its fix."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support import databases
from support.certificates import Authority, make_authority, tls_cluster
from support.commands import headrace
from support.databases import Database
from support.fleet import TESTS, fleet
from support.invariants import assert_sound
from support.scenes import append, until_value, value

ADDRESS = "IP:127.0.0.1"
"""All that the server's certificate is for: by the name `localhost` it is another host."""

ALL_ENCRYPTED = "select bool_and(s.ssl) from pg_stat_ssl s join pg_stat_activity a using (pid) where {}"


@dataclass(frozen=True, slots=True)
class Secured:
    """A database that takes connections by TLS only."""

    database: Database
    ours: Authority
    other: Authority

    def dsn(self, mode: str, root: Path | None = None, host: str = "127.0.0.1") -> str:
        """Return the connection URL with a mode, an authority to trust, and a name for the host."""
        more = f"&sslrootcert={root}" if root else ""
        return f"{self.database.dsn.replace('127.0.0.1', host)}?sslmode={mode}{more}"


@pytest.fixture(scope="module")
def secured() -> Iterator[Secured]:
    """A server with a certificate, and a database with the schema in it."""
    programs = databases.programs_or_skip(databases.VERSIONS[databases.default_version()])
    with tls_cluster(programs, ADDRESS) as (cluster, ours):
        databases.make_template(cluster)
        yield Secured(Database(cluster, databases.TEMPLATE), ours, make_authority(ours.folder, "other"))


async def test_everything_speaks_tls(secured: Secured) -> None:
    """A worker with its keeper and its gauges, and commands beside it, work with `verify-full` and the authority's
    certificate, on a server that takes nothing else.
    """
    dsn = secured.dsn("verify-full", secured.ours.certificate)
    await append(secured.database, *[(f"s{number}", "T", {}) for number in range(5)])
    with fleet(dsn) as workers:
        worker = workers.start("enduring:app", variables={"log_level": "info"})
        await until_value(secured.database, "select count(*) from exact", 5)
        for name in ("gauges", "keeper enduring", "enduring"):
            await until_value(secured.database, ALL_ENCRYPTED.format(f"application_name = 'headrace {name}'"), True)
        for command in (["migrate"], ["status"], ["wait", "exact"], ["failures", "list"]):
            outcome = headrace(*command, dsn=dsn)
            assert outcome.code == 0, outcome
        worker.terminate()
        assert worker.wait() == 0, worker.text()
    assert await value(secured.database, ALL_ENCRYPTED.format("backend_type = 'client backend'"))
    await assert_sound(secured.database)


@pytest.mark.parametrize("mode", ["require", "prefer"])
def test_encrypted_without_a_look_at_the_certificate(secured: Secured, mode: str) -> None:
    """`require`, and the driver's own `prefer`, take any certificate, so they need none of the authority."""
    outcome = headrace("migrate", dsn=secured.dsn(mode))
    assert (outcome.code, outcome.out) == (0, "schema headrace: up to date\n"), outcome


def test_a_wrong_authority_is_one_message(secured: Secured) -> None:
    """A certificate of another authority ends a command, and a worker at once, with 2: waiting would not help."""
    dsn = secured.dsn("verify-full", secured.other.certificate)
    for arguments in (["status"], ["worker", "support.apps.enduring:app"]):
        outcome = headrace(*arguments, dsn=dsn, cwd=TESTS)
        assert_one_message(outcome.err, "is not trusted", "sslrootcert=")
        assert outcome.code == 2, outcome


def test_a_wrong_host_name_is_one_message(secured: Secured) -> None:
    """A certificate for another host is a wrong DSN with `verify-full`, and is not looked at with `verify-ca`."""
    outcome = headrace("status", dsn=secured.dsn("verify-full", secured.ours.certificate, "localhost"))
    assert outcome.code == 2, outcome
    assert_one_message(outcome.err, "is not for this host", "correct the host of the DSN")
    assert headrace("status", dsn=secured.dsn("verify-ca", secured.ours.certificate, "localhost")).code == 0


def test_other_mistakes_are_one_message(secured: Secured) -> None:
    """No TLS at all, a file that is not there, and a file that is no certificate: each is named, with exit code 2."""
    key_file = secured.ours.folder / "hba"
    for dsn, words in (
        (secured.dsn("disable"), "no encryption"),
        (secured.dsn("verify-full", Path("/nowhere.crt")), "sslrootcert=/nowhere.crt is no file"),
        (secured.dsn("verify-full", key_file), "no certificate or key is in a file that it names"),
        (secured.dsn("nonsense"), "must be one of: disable"),
    ):
        outcome = headrace("status", dsn=dsn)
        assert outcome.code == 2, outcome
        assert_one_message(outcome.err, words)


def test_a_server_without_tls(database: Database) -> None:
    """`require` against a server that has no TLS is a usage error that names both sides."""
    outcome = headrace("status", dsn=f"{database.dsn}?sslmode=require")
    assert outcome.code == 2, outcome
    assert_one_message(outcome.err, "the server offers no TLS", "ssl = on")


def assert_one_message(text: str, *words: str) -> None:
    """Assert that standard error is one message with these words, and no traceback."""
    assert text.count("error: ") == 1, text
    assert "Traceback" not in text
    for word in words:
        assert word in " ".join(text.split()), text
