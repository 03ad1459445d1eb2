"""Which runs may have work: hints that let lanes wait instead of asking the database.

A hint is never the truth. Whoever finds a marked run empty clears exactly the mark it saw, so that a
mark set meanwhile is not lost; polling sets marks again whatever happens.
"""

import asyncio

from headrace.domain.ids import Run


class Wake:
    """Marks of runs, and lanes waiting for one."""

    def __init__(self) -> None:
        """Start without marks."""
        self._marks: dict[Run, int] = {}
        self._serial = 0
        self._event = asyncio.Event()
        self._waiting = 0

    @property
    def waiting(self) -> int:
        """How many lanes wait for a mark."""
        return self._waiting

    def mark(self, run: Run) -> None:
        """Say that a run may have work."""
        self._serial += 1
        self._marks[run] = self._serial
        self._event.set()

    def marked(self) -> list[tuple[Run, int]]:
        """Return the marked runs with their marks, longest marked first."""
        return sorted(self._marks.items(), key=lambda item: item[1])

    def served(self, run: Run) -> None:
        """Move a run behind the others: it was given a claim."""
        if run in self._marks:
            self.mark(run)

    def clear(self, run: Run, seen: int) -> None:
        """Take away the mark that was seen, unless it has been set anew."""
        if self._marks.get(run) == seen:
            del self._marks[run]
        if not self._marks:
            self._event.clear()

    def stir(self) -> None:
        """Wake whoever waits, for instance to notice a stop."""
        self._event.set()

    async def wait_marked(self, timeout: float) -> bool:
        """Wait until something is marked, at most ``timeout`` seconds; tells whether something is."""
        self._waiting += 1
        try:
            async with asyncio.timeout(timeout):
                await self._event.wait()
        except TimeoutError:
            return False
        finally:
            self._waiting -= 1
        if not self._marks:
            self._event.clear()
        return bool(self._marks)
