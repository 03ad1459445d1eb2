"""The probes answer whatever the engine does and whatever clients send."""

import logging
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest

from headrace.api import probes
from headrace.api.probes import ProbeServer
from support.waiting import wait_until


@dataclass(frozen=True)
class Health:
    """What the engine would say."""

    started: bool = True
    alive: bool = True
    ready: bool = True
    draining: bool = False
    reasons: tuple[str, ...] = ()


@dataclass
class Served:
    """A running server and what it is told."""

    health: Health = field(default_factory=Health)
    server: ProbeServer | None = None

    @property
    def port(self) -> int:
        """Where it listens."""
        assert self.server is not None
        return self.server.port

    def get(self, path: str, method: str = "GET") -> tuple[int, str]:
        """Return status and body."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", method=method)
        try:
            with urllib.request.urlopen(request, timeout=10) as response:  # noqa: S310 - always http://127.0.0.1
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def raw(self, sent: bytes, shut: bool = True) -> bytes:
        """Return everything that the server answers to these bytes."""
        with socket.create_connection(("127.0.0.1", self.port), 10) as client:
            try:
                client.sendall(sent)
                if shut:
                    client.shutdown(socket.SHUT_WR)
                return b"".join(iter(lambda: client.recv(65536), b""))
            except (ConnectionResetError, BrokenPipeError):
                return b""


@pytest.fixture
def served() -> Iterator[Served]:
    """A server on any free port."""
    state = Served()
    with ProbeServer(0, lambda: state.health, lambda: (b"metric 1\n", "text/plain; version=0.0.4")) as server:
        state.server = server
        yield state


@pytest.mark.parametrize(
    ("path", "bad"),
    [("/livez", {"alive": False}), ("/readyz", {"ready": False}), ("/startupz", {"started": False})],
)
def test_each_probe_speaks_of_its_own_matter(served: Served, path: str, bad: dict[str, bool]) -> None:
    """A probe fails with 503 and the reasons for its own matter alone: not ready is not dead (OBS-7)."""
    assert served.get(path)[0] == 200
    served.health = replace(served.health, **bad, reasons=("the database does not answer",))

    answers = {other: served.get(other) for other in ("/livez", "/readyz", "/startupz")}

    assert {other: status for other, (status, _) in answers.items() if status != 200} == {path: 503}
    assert "- the database does not answer" in answers[path][1]


def test_draining_is_not_ready_and_alive(served: Served) -> None:
    """A worker on its way out wants no restart and no traffic."""
    served.health = replace(served.health, draining=True)

    assert served.get("/readyz") == (503, "not ready\n- draining\n")
    assert served.get("/livez")[0] == 200


def test_metrics_carry_their_content_type(served: Served) -> None:
    """Prometheus gets text and type as the exposition says; a query string changes nothing."""
    answer = served.raw(b"GET /metrics?name=x HTTP/1.1\r\nHost: a\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n")
    assert answer.endswith(b"\r\n\r\nmetric 1\n")


def test_a_broken_source_is_an_answer(served: Served) -> None:
    """When health cannot be told the probe says so with 500, and the next one is answered again."""
    good, served.health = served.health, None  # type: ignore[assignment]

    assert served.get("/livez")[0] == 500
    served.health = good
    assert served.get("/livez")[0] == 200


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"POST /livez HTTP/1.1\r\n\r\n", b"405"),
        (b"GET /secret HTTP/1.1\r\n\r\n", b"404"),
        (b"GET / HTTP/2.0\r\n\r\n", b"400"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"400"),
        (b"GET /livez HTTP/1.1\r\nX: " + b"a" * 100_000 + b"\r\n\r\n", b"431"),
        (b"GET /livez", b"400"),
        (b"\r\n\r\n", b"400"),
        (b"GET /livez HTTP/1.1\r\nHost: a\r\n\r\nGET /metrics HTTP/1.1\r\n\r\n", b"200"),
    ],
)
def test_hostile_requests_get_a_status_and_hurt_nobody(served: Served, sent: bytes, status: bytes) -> None:
    """Whatever is sent: one bounded answer, and the next probe is served."""
    answer = served.raw(sent)

    # A request whose rest was never read may be answered by a reset, as TCP has it.
    assert answer == b"" or answer.split(b" ")[1] == status
    assert answer.count(b"HTTP/1.1 ") <= 1
    assert served.get("/livez")[0] == 200


def test_slow_clients_are_cut(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that never ends its request is answered 408 after a few seconds."""
    monkeypatch.setattr(probes, "READ_SECONDS", 0.05)

    assert b" 408 " in served.raw(b"GET /livez HTTP/1.1\r\n", shut=False)


def test_many_hanging_clients_do_not_keep_a_probe_out(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """With every place taken by clients that say nothing the oldest goes, and the probe is served."""
    monkeypatch.setattr(probes, "MAX_CONNECTIONS", 5)
    hanging = [socket.create_connection(("127.0.0.1", served.port), 10) for _ in range(20)]
    try:
        assert served.get("/livez")[0] == 200
        assert hanging[0].recv(1) == b""
    finally:
        for client in hanging:
            client.close()


def test_head_is_get_without_a_body(served: Served) -> None:
    """Some checkers send HEAD."""
    assert served.get("/livez", "HEAD") == (200, "")


def test_taken_port_is_a_warning_and_any_free_one(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    """HEADRACE_METRICS_PORT already taken: the worker starts all the same, says so, and names the fix."""
    with (
        caplog.at_level(logging.WARNING),
        ProbeServer(served.port, lambda: served.health, lambda: (b"", "text/plain")) as second,
    ):
        other = Served(server=second)
        assert second.port not in {0, served.port}
        assert other.get("/livez")[0] == 200

    assert f"port {served.port} for probes and metrics cannot be had" in caplog.text
    assert "--metrics-port" in caplog.text


def test_it_answers_from_its_own_thread(served: Served) -> None:
    """A handler that blocks its thread does not keep the probes from answering: they have their own."""
    asked = threading.Event()
    answers: list[int] = []

    def ask() -> None:
        answers.append(served.get("/livez")[0])
        asked.set()

    threading.Thread(target=ask).start()
    # This thread, where the engine's loop would be, does nothing but wait.
    assert asked.wait(10)

    assert answers == [200]


def test_close_frees_the_port_and_ends_the_thread() -> None:
    """After close nothing listens and no thread is left; closing again or before the start is safe."""
    server = ProbeServer(0, Health, lambda: (b"", "text/plain"))
    server.start()
    port = server.port
    server.close()
    server.close()
    ProbeServer(0, Health, lambda: (b"", "text/plain")).close()

    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 1).close()
    wait_until(lambda: not [t for t in threading.enumerate() if t.name == "headrace-probes"])
