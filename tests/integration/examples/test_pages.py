"""What the pages tell a newcomer to type is typed here, as it stands there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.commands import environment
from support.databases import Database

ROOT = Path(__file__).parents[3]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path, kind: str) -> list[str]:
    """Return the code blocks of one kind on a page."""
    return [body for found, body in BLOCK.findall(page.read_text("utf-8")) if found == kind]


def typed(script: str, database: Database, folder: Path) -> str:
    """Type shell commands in a folder, with the test's database in place of the one on the page; return the output."""
    own = environment(database.dsn, metrics_port="0")
    own["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{own['PATH']}"
    script = re.sub(r"^export HEADRACE_DSN=.*$", "", script, flags=re.MULTILINE)
    done = subprocess.run(
        ["/bin/sh", "-euc", script], env=own, cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def shop(empty_database: Database) -> str:
    """The output of the commands on the page of the shop."""
    (script,) = blocks(ROOT / "examples" / "shop" / "README.md", "sh")
    return typed(script, empty_database, ROOT / "examples")


async def test_the_shop_fills_its_read_models(shop: str, empty_database: Database) -> None:
    """The commands on the page of the example run as written and leave exactly the rows that it speaks of."""
    async with empty_database.connection() as db:
        customers = await db.fetch("select * from orders_by_customer order by customer")
        orders = await db.fetch("select * from order_states order by order_id")

    assert [tuple(row) for row in customers] == [("ann", 2, 4500), ("bob", 2, 1449)]
    assert [tuple(row) for row in orders] == [
        ("order-1", "placed", 1200),
        ("order-2", "cancelled", 0),
        ("order-3", "placed", 3300),
        ("order-4", "placed", 999),
    ]


def test_the_shop_greets_each_customer_once(shop: str) -> None:
    """The reactor of the example, set up before the events came, handles each of its events once."""
    assert len(re.findall(r"^mail to ann@", shop, re.MULTILINE)) == 1
    assert len(re.findall(r"^mail to bob@", shop, re.MULTILINE)) == 1


async def test_the_readme_runs(empty_database: Database, tmp_path: Path) -> None:
    """The subscriber on the front page, saved under the name it has there, runs by the commands on the front page."""
    page = ROOT / "README.md"
    (code,) = [each for each in blocks(page, "python") if "App(" in each]
    name = re.match(r"# ([\w/]+\.py)\n", code)
    assert name is not None
    (tmp_path / name[1]).parent.mkdir(parents=True)
    (tmp_path / name[1]).write_text(code, "utf-8")
    (script,) = [each for each in blocks(page, "sh") if "headrace import" in each]

    output = typed(script, empty_database, tmp_path)

    (shown,) = [each for each in blocks(page, "text") if "caught up" in each]
    # Caught up comes first, the end of the boot a moment later: a worker that ends in between leaves it to the next.
    assert shown.strip() in output.replace("  booting  ", "  active  ")
    async with empty_database.connection() as db:
        rows = await db.fetch("select * from orders_by_customer order by customer")
    assert [tuple(row) for row in rows] == [("ann", 2, 4500)]
