"""All benchmarks in their quick form, one after the other; `python -m benchmarks.NAME --help` for each alone."""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

QUICK: dict[str, list[str]] = {
    "engine_catchup": ["--rounds", "3"],
    "fair_share": [],
    "append_rate": ["--pairs", "12"],
    "latency": ["--seconds", "10"],
}


def main() -> int:
    """Run them, each in a process of its own; the exit code is 1 when a check has voided a figure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results there as well")
    options = parser.parse_args()
    results: list[Any] = []
    codes: list[int] = []
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        for name, arguments in QUICK.items():
            found = Path(folder) / f"{name}.json"
            command = [sys.executable, "-m", f"benchmarks.{name}", *arguments, "--json", str(found)]
            codes.append(subprocess.run(command, check=False, cwd=Path(__file__).parent.parent).returncode)
            if found.exists():
                results.append(json.loads(found.read_text("utf-8")))
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=2) + "\n", "utf-8")
    return max(codes)


if __name__ == "__main__":
    raise SystemExit(main())
