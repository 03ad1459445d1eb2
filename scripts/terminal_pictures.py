"""Make the pictures of the command line in docs/images, from real commands on a throw-away PostgreSQL.

Every command runs on a terminal of its own, of a size that is said, and what stood on it is drawn: dark, light, narrow
and wide. Run it again after a change of what a command prints, and look at what came of it:

    .venv/bin/python scripts/terminal_pictures.py

Where `rsvg-convert` is there (Debian: librsvg2-bin) each is also written as PNG into build/images.
"""

import fcntl
import json
import os
import pty
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME, SVG_EXPORT_THEME, TerminalTheme
from rich.text import Text

from headrace.embedded.cluster import Cluster
from headrace.embedded.programs import find_programs

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
PNGS = ROOT / "build" / "images"
EVENTS = 60_000
APP = """
import random
import time

from headrace import App, Connection, Event, PartitionKey, Stream, Unrecoverable, on, projector, reactor


@projector("orders_by_customer", partition_by=Stream())
class OrdersByCustomer:
    @on("OrderPlaced")
    async def placed(self, event: Event, key: PartitionKey, db: Connection) -> None:
        if event.data["currency"] == "???":
            raise Unrecoverable("there is no currency '???'")


@projector("order_totals")
class OrderTotals:
    @on("OrderPlaced")
    async def add(self, event: Event, db: Connection) -> None: ...


@reactor("welcome_mail", partition_by=Stream(), start="beginning")
class WelcomeMail:
    @on("CustomerRegistered")
    def send(self, event: Event) -> None:
        time.sleep(0.01)


app = App(OrdersByCustomer(), OrderTotals(), WelcomeMail(), name="shop")
"""


@dataclass(frozen=True)
class Shot:
    """One picture: a command on a terminal of a size, in one of two themes."""

    name: str
    command: str
    columns: int = 80
    rows: int = 24
    light: bool = False
    dsn: str | None = None


def shots() -> list[Shot]:
    """Return all pictures, those of work in progress first."""
    top, status = "headrace top --times 3 --every 1.5", "headrace status"
    return [
        Shot("top", top),
        Shot("top-wide-light", top, 200, 16, light=True),
        Shot("status", status),
        Shot("status-light", status, light=True),
        Shot("status-wide", status, 200),
        Shot("status-one", "headrace status orders_by_customer --partitions"),
        Shot("help", "headrace --help"),
        Shot("help-light", "headrace --help", light=True),
        Shot("error", status, dsn="postgresql://shop@127.0.0.1:1/shop"),
        Shot("error-light", "headrace status --limit many", light=True),
    ]


def main() -> int:
    """Draw everything; return the exit code."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    with Cluster(find_programs("embedded")) as cluster, tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "shop.py").write_text(APP, "utf-8")
        (place / "events.jsonl").write_text("\n".join(events()), "utf-8")
        environment = os.environ | {
            "HEADRACE_DSN": cluster.dsn(),
            "HEADRACE_APP": "shop:app",
            "TERM": "xterm-256color",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES"):
            environment.pop(name, None)
        for words in (["migrate"], ["setup"], ["import", "events.jsonl"]):
            subprocess.run(["headrace", *words], env=environment, cwd=place, check=True)
        with at_work(environment, place, 2):
            for shot in shots():
                draw(shot, on_terminal(shot, environment, place))
    return 0


def events() -> Iterator[str]:
    """Yield the lines of a made-up log: many customers, one of whom pays in a currency that is none."""
    for number in range(EVENTS):
        customer, odd = f"customer-{number % 997}", number % 997 == 17
        first = number < 997
        yield json.dumps(
            {
                "stream": customer,
                "type": "CustomerRegistered" if first else "OrderPlaced",
                "data": {"total_cents": number % 9000, "currency": "???" if odd else "EUR"},
            }
        )


@contextmanager
def at_work(environment: dict[str, str], place: Path, workers: int) -> Iterator[None]:
    """Let so many workers work meanwhile."""
    started = [
        subprocess.Popen(
            ["headrace", "worker", "--metrics-port", "0"], env=environment, cwd=place, stderr=subprocess.DEVNULL
        )
        for _ in range(workers)
    ]
    try:
        yield
    finally:
        for worker in started:
            worker.terminate()
        for worker in started:
            worker.wait()


def on_terminal(shot: Shot, environment: dict[str, str], place: Path) -> str:
    """Return what stood on a terminal at the end of a command, its colours included."""
    keyboard, screen = pty.openpty()
    fcntl.ioctl(keyboard, termios.TIOCSWINSZ, struct.pack("HHHH", shot.rows, shot.columns, 0, 0))
    own = environment | ({"HEADRACE_DSN": shot.dsn} if shot.dsn else {})
    with subprocess.Popen(shot.command.split(), env=own, cwd=place, stdin=screen, stdout=screen, stderr=screen):
        os.close(screen)
        seen = b""
        while piece := _read(keyboard):
            seen += piece
    os.close(keyboard)
    text = seen.decode().replace("\r\n", "\n")
    # Of a live screen the last drawing: each begins at the upper left corner.
    return text.partition("\x1b[?1049l")[0].rpartition("\x1b[H")[2]


def _read(keyboard: int) -> bytes:
    try:
        return os.read(keyboard, 1 << 16)
    except OSError:  # what a terminal says when its last user has gone
        return b""


def draw(shot: Shot, seen: str) -> None:
    """Write the picture of what was seen."""
    console = Console(record=True, file=StringIO(), width=shot.columns, height=shot.rows, force_terminal=True)
    console.print(Text(f"$ {shot.command.partition(' --times')[0]}", "bold"))
    for line in seen.strip("\n").split("\n"):
        console.print(Text.from_ansi(line), soft_wrap=True)
    theme: TerminalTheme = DEFAULT_TERMINAL_THEME if shot.light else SVG_EXPORT_THEME
    svg = console.export_svg(title="", theme=theme, code_format=_without_fonts(), unique_id=shot.name)
    file = IMAGES / f"{shot.name}.svg"
    file.write_text(svg, "utf-8")
    print(file.relative_to(ROOT))  # noqa: T201
    if converter := shutil.which("rsvg-convert"):
        PNGS.mkdir(parents=True, exist_ok=True)
        subprocess.run([converter, file, "-w", str(shot.columns * 12), "-o", PNGS / f"{shot.name}.png"], check=True)


def _without_fonts() -> str:
    """Return rich's frame without the fonts that it would fetch from elsewhere whenever somebody looks at a page."""
    before, _, rest = CONSOLE_SVG_FORMAT.partition("@font-face")
    frame = before + rest[rest.index(".{unique_id}-matrix") :].replace("Fira Code, monospace", "monospace")
    # Some programs leave out blanks at the beginning of a text unless they are told.
    return frame.replace('<g class="{unique_id}-matrix">', '<g class="{unique_id}-matrix" xml:space="preserve">')


if __name__ == "__main__":
    sys.exit(main())
