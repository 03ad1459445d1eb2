"""Make the pictures of `headrace demo` in docs/images, from real runs on terminals of two sizes.

The demonstration redraws its screen a few times a second; of each run the last drawing is taken in which something is
to be seen: a killed worker whose lease has not run out, a parked key while the rest goes on, the verdict. Run it again
after a change of the screen, and look at what came of it:

    .venv/bin/python scripts/demo_pictures.py
"""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path

from terminal_pictures import IMAGES, Shot, draw

COMMAND = "headrace demo --live"
SCENES: dict[str, Callable[[str], bool]] = {
    "killed": lambda text: "nobody else touches" in text and "taken over" not in text and "take-over after" not in text,
    "parked": lambda text: "1 parked" in text and "take-over after" in text,
}
SIZES = (("", 80, 24, False), ("-wide", 200, 30, True))


def main() -> int:
    """Draw everything; return the exit code."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    for ending, columns, rows, light in SIZES:
        drawings, rest = seen_on(columns, rows)
        for scene, is_seen in SCENES.items():
            found = [drawing for drawing in drawings if is_seen(drawing)]
            if not found:
                print(f"{scene} was not to be seen this time: run it again", file=sys.stderr)  # noqa: T201
                return 1
            draw(Shot(f"demo-{scene}{ending}", COMMAND, columns, rows, light), found[-1])
        if not ending:
            draw(Shot("demo-verdict", COMMAND, columns, rows, light), rest)
    return 0


def seen_on(columns: int, rows: int) -> tuple[list[str], str]:
    """Return all drawings of a whole run on a terminal of this size, and what stands there at the end."""
    keyboard, screen = pty.openpty()
    fcntl.ioctl(keyboard, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    own = os.environ | {"TERM": "xterm-256color", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES"):
        own.pop(name, None)
    with subprocess.Popen(COMMAND.split(), env=own, stdin=screen, stdout=screen, stderr=screen):
        os.close(screen)
        seen = b""
        while piece := _read(keyboard):
            seen += piece
    os.close(keyboard)
    text = seen.decode().replace("\r\n", "\n")
    drawn, _, rest = text.rpartition("\x1b[?1049l")
    return drawn.split("\x1b[H")[1:], rest.replace("\x1b[?25h", "")


def _read(keyboard: int) -> bytes:
    try:
        return os.read(keyboard, 1 << 16)
    except OSError:  # what a terminal says when its last user has gone
        return b""


if __name__ == "__main__":
    sys.exit(main())
