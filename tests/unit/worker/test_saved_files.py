"""Which files `headrace dev` takes for saved."""

import os
from pathlib import Path

from headrace.runtime.dev.saved import changed, stamps


def test_code_counts_and_nothing_else(tmp_path: Path) -> None:
    """Python files of the project, and the files that are named; no hidden folder, no environment, no cache."""
    counted = ["a.py", "shop/b.py", "shop/deep/c.py"]
    passed_over = [".headrace/data/x.py", ".venv/lib/y.py", "shop/__pycache__/z.py", "node_modules/n.py", "notes.txt"]
    for name in (*counted, *passed_over, "events.jsonl"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("", "utf-8")
    seen = stamps(tmp_path, [tmp_path / "events.jsonl", tmp_path / "not-there"])
    assert {path.relative_to(tmp_path).as_posix() for path in seen} == {*counted, "events.jsonl"}


def test_new_gone_and_different_files_are_changed(tmp_path: Path) -> None:
    """A file counts as saved when it came, went, has another time or another size."""
    for name in ("same.py", "gone.py", "touched.py", "longer.py"):
        (tmp_path / name).write_text("1\n", "utf-8")
    before = stamps(tmp_path)
    (tmp_path / "gone.py").unlink()
    (tmp_path / "new.py").write_text("", "utf-8")
    os.utime(tmp_path / "touched.py", ns=(1, 1))
    time = (tmp_path / "longer.py").stat().st_mtime_ns
    (tmp_path / "longer.py").write_text("1\n2\n", "utf-8")
    os.utime(tmp_path / "longer.py", ns=(time, time))
    assert [path.name for path in changed(before, stamps(tmp_path))] == ["gone.py", "longer.py", "new.py", "touched.py"]
    assert changed(before, before) == []
