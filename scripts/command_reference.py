"""Write docs/reference/commands.md from the command line itself: `make reference`.

What `--help` says is the only description of a command, so the page is made of it and checked in for those who read the
repository. With `--check` nothing is written; a page that is out of date is an exit code of 1.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

# Read when typer is imported: a page has no terminal, its width is fixed, and a build machine must not colour it.
os.environ |= {"TERMINAL_WIDTH": "88", "NO_COLOR": "1", "TERM": "dumb"}
for _name in ("FORCE_COLOR", "GITHUB_ACTIONS", "PY_COLORS"):
    os.environ.pop(_name, None)

from typer.testing import CliRunner  # noqa: E402 - see above

from headrace.cli.commands import COMMANDS, loaded  # noqa: E402
from headrace.cli.main import app  # noqa: E402

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "commands.md"
OPENING = """\
# Commands

<!-- Made by `make reference` from what `--help` says. Change the command, not this page. -->

`APP` is `module:attribute`, importable from the current folder, or `HEADRACE_APP`. The database is `--dsn` or
`HEADRACE_DSN`; all variables are on [another page](settings.md). A name may be `subscription` or `subscription#key`.
`--output json` prints one document that scripts may rely on. `--debug`, anywhere, shows where an error comes from.

| exit code | means |
| --- | --- |
| 0 | done |
| 1 | done, with errors in the result |
| 2 | wrong use: the message names the fix |
| 3 | the database cannot be reached |
| 4 | not finished: a limit or a time-out was reached with work left |

"""


def main() -> int:
    """Write or check the page; return the exit code."""
    text = page()
    if "--check" not in sys.argv[1:]:
        PAGE.parent.mkdir(parents=True, exist_ok=True)
        PAGE.write_text(text, "utf-8")
    elif not PAGE.exists() or PAGE.read_text("utf-8") != text:
        print(f"{PAGE.relative_to(Path.cwd())} is out of date: run `make reference`", file=sys.stderr)  # noqa: T201
        return 1
    return 0


def page() -> str:
    """Return the whole page: a table of all commands, and what each says of itself."""
    commands = [(words, sentence) for name in COMMANDS for words, sentence in described(name)]
    table = "\n".join(
        f"| [`headrace {words}`](#headrace-{words.replace(' ', '-')}) | {sentence.replace('|', chr(92) + '|')} |"
        for words, sentence in commands
    )
    sections = "\n".join(f"## headrace {words}\n\n```text\n{help_of(*words.split())}\n```\n" for words, _ in commands)
    return f"{OPENING}| command | does |\n| --- | --- |\n{table}\n\n{sections}"


def described(name: str) -> Iterator[tuple[str, str]]:
    """Yield a command, or each command of a group, with its sentence."""
    group = getattr(loaded(name), "commands", None)
    if group is None:
        yield name, COMMANDS[name].summary
        return
    for each, command in group.items():
        yield f"{name} {each}", (command.help or "").strip().split("\n\n")[0].replace("\n", " ")


def help_of(*words: str) -> str:
    """Return what `--help` prints for a command, without the blanks around it."""
    result = CliRunner().invoke(app, [*words, "--help"], prog_name="headrace")
    lines = [line.rstrip() for line in result.output.splitlines()]
    return "\n".join(lines).strip("\n")


if __name__ == "__main__":
    sys.exit(main())
