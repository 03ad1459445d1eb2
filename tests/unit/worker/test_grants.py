"""What `headrace migrate --grants` prints is what the statements of this package do to each table, and no more."""

import re
from collections import defaultdict
from importlib import resources

from headrace.store.migrate import grants

DOES = {
    "select": r"(?<!delete )(?:from|join|,)\s+headrace\.(\w+)\b(?!\s*\()",
    "insert": r"insert into headrace\.(\w+)",
    "update": r"update headrace\.(\w+)",
    "delete": r"delete from headrace\.(\w+)",
}
UPSERT = r"insert into headrace\.(\w+)[^;]*?on conflict[^;]*? do update"
ONLY_THE_OWNER = {("migrations", "insert")}
FOR_PEOPLE = {("stats_v1", "select")}


def done_by_statements() -> set[tuple[str, str]]:
    """Return table and right for everything that a statement of this package does."""
    texts = [
        re.sub(r"--[^\n]*", "", file.read_text("utf-8"))
        for folder in ("sql", "sql/migrations")
        for file in (resources.files("headrace.store") / folder).iterdir()
        if file.name.endswith(".sql") and file.name != "check.sql"
    ]
    tables = {name for text in texts for name in re.findall(r"create table (?:if not exists )?headrace\.(\w+)", text)}
    found: dict[str, set[str]] = defaultdict(set)
    for text in texts:
        for right, pattern in [*DOES.items(), ("update", UPSERT)]:
            found[right] |= set(re.findall(pattern, text)) & tables
    return {(table, right) for right, names in found.items() for table in names}


def granted() -> set[tuple[str, str]]:
    """Return table and right for everything that is printed."""
    found = set()
    for rights, names in re.findall(r"grant ([a-z, ]+) on ((?:\"headrace\"\.\w+[,\s]*)+) to", grants("worker")):
        found |= {(name, right.strip()) for name in re.findall(r"\.(\w+)", names) for right in rights.split(",")}
    return found


def test_each_grant_is_what_a_statement_does() -> None:
    """A statement that does more needs a grant, and a grant that no statement needs is one too many."""
    assert granted() - FOR_PEOPLE == done_by_statements() - ONLY_THE_OWNER
