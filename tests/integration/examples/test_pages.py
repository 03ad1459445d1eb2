"""What the pages tell a newcomer to save, to type and to run is saved, typed and run here, as it stands there."""

import configparser
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]  # no stubs for one look

from headrace.settings import Settings, variable
from headrace.telemetry.metrics import Metrics
from support.commands import headrace
from support.databases import Database
from support.pages import Reader, blocks

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
# Every block of these is done; a page that joins them needs no more than its name here.
PAGES = ["tutorial.md", *(f"how-to/{page.name}" for page in sorted((DOCS / "how-to").glob("*.md")))]

# What no test does, by page and by reason. Think twice before this grows.
PASSED_OVER: dict[str, list[str]] = {"tutorial.md": ["not run: the test has Headrace installed"]}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_can_be_done_as_it_stands(
    name: str, empty_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything on the page works in the order of the page, and prints what the page shows."""
    folder = tmp_path / "reader"
    folder.mkdir()
    monkeypatch.setenv("HEADRACE_DSN", empty_database.dsn)

    Reader(folder, empty_database.dsn).do(DOCS / name)


@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_passed_over_silently(name: str) -> None:
    """What a page asks not to run is written down above, with its reason."""
    notes = [block.note for block in blocks(DOCS / name) if block.note.startswith("not run")]

    assert notes == PASSED_OVER.get(name, [])


def test_the_deployments_start_what_there_is(database: Database, tmp_path: Path) -> None:
    """Image, unit and Deployment start the worker by words that it knows; variables, probes and metrics are there."""
    files = {block.title: block.body for block in blocks(DOCS / "how-to" / "run-in-production.md") if block.title}
    (container,) = yaml.safe_load(files["deployment.yaml"])["spec"]["template"]["spec"]["containers"]
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]  # as the documentation of the module says
    unit.read_string(files["headrace-worker@.service"])
    image = re.search(r"^CMD (.*)$", files["Dockerfile"], re.MULTILINE)
    rules = yaml.safe_load(files["alerts.yaml"])["groups"][0]["rules"]
    words = [container["args"], unit["Service"]["ExecStart"].split(), json.loads(image[1] if image else "[]")]
    subscriber = "from headrace import App\n\napp = App(name='shop')\n"
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "read_models.py").write_text(subscriber, "utf-8")

    for program, *arguments in words:
        assert Path(program).name == "headrace"
        variables = {"app": "shop.read_models:app", "metrics_port": "0"}
        done = headrace(*arguments, "--until-caught-up", dsn=database.dsn, cwd=tmp_path, variables=variables)
        assert done.code == 0, done.err
    used = set(re.findall(r"\bHEADRACE_[A-Z_]+", "".join(files.values())))
    assert used <= {variable(field) for field in Settings.model_fields}
    probes = {probe["httpGet"]["path"] for name, probe in container.items() if name.endswith("Probe")}
    assert probes == {"/startupz", "/livez", "/readyz"}
    shown = Metrics().render()[0].decode()
    assert [m for rule in rules for m in re.findall(r"headrace_\w+", rule["expr"]) if m not in shown] == []


@pytest.fixture
def shop(empty_database: Database, tmp_path: Path) -> str:
    """The output of the commands on the page of the shop."""
    reader = Reader(ROOT / "examples", empty_database.dsn, tmp_path)
    return reader.do(ROOT / "examples" / "shop" / "README.md")


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


async def test_the_subscriber_on_the_front_page_works(database: Database, tmp_path: Path) -> None:
    """The subscriber of the README, saved under the name it has there, fills its read model."""
    (code,) = [block for block in blocks(ROOT / "README.md") if block.kind == "python"]
    assert code.title is not None
    (tmp_path / code.title).parent.mkdir(parents=True)
    (tmp_path / code.title).write_text(code.body, "utf-8")
    order = '{"stream": "order-1", "type": "OrderPlaced", "data": {"total_cents": %d}, "tags": ["customer:ann"]}\n'

    imported = headrace("import", "-", dsn=database.dsn, stdin="".join(order % c for c in (1200, 3300)).encode())
    worked = headrace("worker", "shop.read_models:app", "--until-caught-up", dsn=database.dsn, cwd=tmp_path)

    assert (imported.code, worked.code) == (0, 0), imported.err + worked.err
    async with database.connection() as db:
        rows = await db.fetch("select * from orders_by_customer")
    assert [tuple(row) for row in rows] == [("ann", 4500)]


# Each of these pages is wrong in one way; the reader says so in these words.
WRONG = {
    "a command that fails": ("```sh\nfalse\n```\n", "exit code 1"),
    "a command that should fail": ("<!-- exit 2 -->\n```sh\ntrue\n```\n", "exit code 0"),
    "a variable that is another": ('```sh\nexport A=1\n```\n\n```sh\ntest "$A" = 2\n```\n', "exit code 1"),
    "code that raises": ("```python\nraise OSError\n```\n", "OSError"),
    "code that raises late": ("```python\nimport asyncio\nawait asyncio.sleep(0)\nraise OSError\n```\n", "OSError"),
    "an output that is another": ("```sh\necho one two\n```\n\n```text\none three\n```\n", "shows 'one three'"),
    "an output in another order": ("```sh\necho a; echo b\n```\n\n```text\nb\na\n```\n", "shows 'a'"),
    "an output of nothing": ("```text\none\n```\n", "nothing on the page prints this"),
    "rows that are others": ("```sql\nselect 1, 'a'\n```\n\n```text\n1 | b\n```\n", "shows '1 | b'"),
    "a statement that fails": ("```sql\nselect 1/0\n```\n", "DivisionByZero"),
    "a language that nobody speaks": ("```cobol\nSTOP RUN.\n```\n", "a block of cobol"),
    "a block in a list": ("- do this\n\n    ```sh\n    true\n    ```\n", "0 blocks were understood"),
    "a block without a language": ("```\ntrue\n```\n", "0 blocks were understood"),
}
RIGHT = """
```sh
export A=1
mkdir inner
cd inner
```

```python title="one.py"
print("one, two,", "three")
```

```sh
test "$A" = 1
python one.py
```

```text
one, … three
```

<!-- exit 3 -->

```sh
exit 3
```

```python
import asyncio
import os
await asyncio.sleep(0)
a = 1
```

```python
print(a, os.environ["HEADRACE_DSN"][:10])
```

```text
1   postgresql
```

```sql
create table t (a int);
insert into t values (1);
select a, null from t
```

```text
1 |
```

<!-- picture -->

```text
o-->o
```
"""


@pytest.fixture
def read(empty_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Read a text as a page."""
    folder = tmp_path / "reader"
    folder.mkdir()
    monkeypatch.setenv("HEADRACE_DSN", empty_database.dsn)

    def do(text: str) -> str:
        (tmp_path / "page.md").write_text(text, "utf-8")
        return Reader(folder, empty_database.dsn).do(tmp_path / "page.md")

    return do


@pytest.mark.parametrize(("text", "words"), WRONG.values(), ids=WRONG)
def test_a_wrong_page_is_caught(read: Callable[[str], str], text: str, words: str) -> None:
    """The reader stumbles over each of them: otherwise the tests above would prove nothing."""
    with pytest.raises(AssertionError, match=re.escape(words)):
        read(text)


def test_a_right_page_passes(read: Callable[[str], str]) -> None:
    """The reader understands every kind of block, keeps what must be kept, and passes over what is no output."""
    assert read(RIGHT) == "1 | "
