"""What the kernel knows of a process."""

import re
from pathlib import Path


def peak(pid: int) -> int:
    """Return the most bytes that a running process ever had resident."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024
