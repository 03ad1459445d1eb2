"""Pages that are done as they stand: every code block of a page is saved, typed or run, in the order of the page.

What a block is for is seen by its first line. With a title it is a file and is saved under that name. Without one `sh`
is typed into a shell that keeps its variables and its folder, `python` is run in one namespace for the whole page (with
`await` at the top, as in `python -m asyncio`), `sql` is sent to the database. A `text` block is what the block before
prints: its lines, in this order, with others between them; `…` stands for anything, blanks count as one.

A comment above a block changes that: `<!-- exit 1 -->` expects an exit code, `<!-- not run: why -->` passes a block
over, `<!-- picture -->` says that a text block is nobody's output; `<!-- in place of … -->` changes a file, by the
names of what is defined and imported; `<!-- in a second terminal, until it prints … -->` lets a command run to the end
of the page. What is passed over is pinned by a test.
"""

import ast
import asyncio
import contextlib
import inspect
import io
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import asyncpg

from support.commands import environment
from support.waiting import wait_until

FENCE = re.compile(
    r"^(?:<!-- (?P<note>[^\n]*?) -->\n+)?^```(?P<kind>\w+)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
SECONDS = 120
NO_OUTPUT = ("mermaid",)
SECOND = "in a second terminal, until it prints "


@dataclass(frozen=True, slots=True)
class Block:
    """One code block; `line` is where its code begins on the page."""

    page: Path
    line: int
    kind: str
    title: str | None
    note: str
    body: str

    @property
    def place(self) -> str:
        """Name the block for a message."""
        return f"{self.page.name}:{self.line}"

    @property
    def is_passed_over(self) -> bool:
        """Tell whether the page says that this block is not run."""
        is_picture = self.kind in NO_OUTPUT or (self.kind == "text" and self.note == "picture")
        return is_picture or self.note.startswith("not run")

    @property
    def exit_code(self) -> int:
        """The exit code that the page promises."""
        found = re.fullmatch(r"exit (\d+)", self.note)
        return int(found[1]) if found else 0


def blocks(page: Path) -> Iterator[Block]:
    """Yield the code blocks of a page.

    Raises:
        AssertionError: a fence that is not understood, so that none is overlooked.

    """
    text = page.read_text("utf-8")
    found = 0
    for match in FENCE.finditer(text):
        found += 1
        line = text.count("\n", 0, match.start("body")) + 1
        yield Block(page, line, match["kind"], match["title"], match["note"] or "", match["body"])
    fences = len(re.findall(r"^\s*```", text, re.MULTILINE))
    assert fences == 2 * found, f"{page.name}: {fences} lines open or close a block, {found} blocks were understood"


class Reader:
    """Somebody who does what a page says, in a folder and on a database of their own."""

    def __init__(self, folder: Path, dsn: str, desk: Path | None = None) -> None:
        """Read in ``folder``; what the shell remembers lies on the ``desk``, by default beside the folder."""
        self._folder = folder
        self._dsn = dsn
        self._kept = (desk or folder.parent) / f"{folder.name}.shell"
        self._kept.write_text(f"cd '{folder}'\n", "utf-8")
        self._environment = environment(dsn, metrics_port="0", log_format="console")
        self._environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{self._environment['PATH']}"
        # A page is read in its own folder: a test of the page must find its conftest, not ours.
        self._environment |= {"COLUMNS": "120", "NO_COLOR": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        self._module = ModuleType("page")
        self._printed = ""
        self._did = False
        self._open = contextlib.ExitStack()

    def do(self, page: Path) -> str:
        """Do everything that the page says and return what its last block printed.

        Raises:
            AssertionError: something did not come out as the page says; the message names the block.

        """
        sys.modules["page"] = self._module
        try:
            with asyncio.Runner() as runner, contextlib.ExitStack() as self._open:
                for block in blocks(page):
                    try:
                        self._one(block, runner)
                    except Exception as error:
                        raise AssertionError(f"{block.place}: {type(error).__name__}: {error}") from error
        finally:
            del sys.modules["page"]
        return self._printed

    def _one(self, block: Block, runner: asyncio.Runner) -> None:
        if block.is_passed_over:
            return
        if block.title is not None:
            self._save(block)
        elif block.note.startswith(SECOND):
            self._start(block)
        elif block.kind == "text":
            assert self._did, "nothing on the page prints this; is it a picture?"
            assert_shown(block, self._printed)
        elif block.kind == "sh":
            self._did, self._printed = True, self._type(block)
        elif block.kind == "python":
            self._did, self._printed = True, self._run(block, runner)
        elif block.kind == "sql":
            self._did, self._printed = True, runner.run(self._send(block))
        else:
            raise AssertionError(f"nobody knows what to do with a block of {block.kind}")

    def _save(self, block: Block) -> None:
        here = self._folder
        for line in self._kept.read_text("utf-8").splitlines():
            if line.startswith("cd "):
                here = Path(line[3:].strip("'"))
        file = here / str(block.title)
        file.parent.mkdir(parents=True, exist_ok=True)
        changes = block.note.startswith("in place of")
        file.write_text(changed(file.read_text("utf-8"), block.body) if changes else block.body, "utf-8")

    def _start(self, block: Block) -> None:
        wanted = block.note.removeprefix(SECOND)
        heard = self._kept.with_suffix(f".{block.line}")
        script = f". '{self._kept}'\n{block.body}"
        process = self._open.enter_context(second_terminal(script, self._environment, self._folder, heard))

        def said() -> str:
            text = heard.read_text("utf-8")
            assert process.poll() is None, f"it ended with {process.returncode}:\n{text}"
            return text

        wait_until(lambda: wanted in said(), SECONDS, f"{wanted!r} is printed by {block.body}")
        for dsn in re.findall(r"export HEADRACE_DSN=(\S+)", said()):
            self._dsn = self._environment["HEADRACE_DSN"] = dsn

    def _type(self, block: Block) -> str:
        typed = re.sub(r"^export HEADRACE_DSN=.*$", f"export HEADRACE_DSN={self._dsn}", block.body, flags=re.MULTILINE)
        script = f". '{self._kept}'\n{typed}\n{{ export -p; echo \"cd '$PWD'\"; }} > '{self._kept}'\n"
        done = subprocess.run(
            ["/bin/sh", "-euc", script],
            env=self._environment,
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        said = done.stdout + done.stderr
        assert done.returncode == block.exit_code, f"exit code {done.returncode}\n{said}"
        return said

    def _run(self, block: Block, runner: asyncio.Runner) -> str:
        code = compile(block.body, block.place, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            # What `eval` returns of such code is a coroutine if there is an await in it.
            waits = eval(code, self._module.__dict__)  # noqa: S307 - the page is ours
            if inspect.iscoroutine(waits):
                runner.run(waits)
        return printed.getvalue()

    async def _send(self, block: Block) -> str:
        connection = await asyncpg.connect(self._dsn)
        try:
            *before, last = [each.strip() for each in block.body.split(";\n") if each.strip()]
            for statement in before:
                await connection.execute(statement)
            rows = await connection.fetch(last)
        finally:
            await connection.close(timeout=10)
        return "\n".join(" | ".join("" if value is None else str(value) for value in row) for row in rows)


@contextlib.contextmanager
def second_terminal(script: str, own: dict[str, str], folder: Path, heard: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a script beside the page, what it says goes to the file ``heard``; at the end it gets Ctrl-C."""
    with heard.open("wb") as output:
        process = subprocess.Popen(
            ["/bin/sh", "-euc", script],
            env=own,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGINT)
        process.wait(SECONDS / 2)


def changed(code: str, change: str) -> str:
    """Return code with what is defined, or imported from a module, in ``change`` in place of what has that name."""
    lines = code.splitlines()
    for new in ast.parse(change).body:
        (old,) = [each for each in ast.parse("\n".join(lines)).body if named(each) == named(new)]
        lines[old.lineno - 1 : old.end_lineno] = change.splitlines()[new.lineno - 1 : new.end_lineno]
    return "\n".join(lines) + "\n"


def named(statement: ast.stmt) -> str | None:
    """Return the name that a statement gives: of a class, a function, or the module that it imports from."""
    return getattr(statement, "name", None) or getattr(statement, "module", None)


def assert_shown(block: Block, printed: str) -> None:
    """Check that what a block shows is what was printed.

    Raises:
        AssertionError: a line of the page was not printed, or not in this order.

    """
    lines = iter(_plain(line) for line in printed.splitlines())
    for wanted in filter(None, map(_plain, block.body.splitlines())):
        pattern = ".*".join(map(re.escape, wanted.split("…")))
        found = any(re.fullmatch(pattern, line) for line in lines)
        assert found, f"the page shows {wanted!r}, which was not printed (there) in\n{printed}"


def _plain(line: str) -> str:
    return " ".join(line.split())
