"""What the engine's verbs answer."""

from dataclasses import dataclass

from headrace.domain.errors import HeadraceError
from headrace.domain.ids import PartitionKey, Position


@dataclass(frozen=True, slots=True)
class RunError:
    """One thing that went wrong in a run and was recorded; ``key`` is None for a main."""

    subscription: str
    key: PartitionKey | None
    position: Position | None
    text: str


class RunFailed(HeadraceError):
    """A run ended with errors in its result."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a bounded run did.

    ``processed`` counts handled events over all subscriptions. ``has_pending``: work that could go
    on now is left. ``all_locked``: what is left is in the hands of other workers. ``blocked``: what
    a worker that ended by itself has left waits for a person.
    """

    processed: int = 0
    has_pending: bool = False
    all_locked: bool = False
    errors: tuple[RunError, ...] = ()
    blocked: bool = False

    def raise_for_errors(self) -> None:
        """Raise RunFailed with the first error's text when there is any."""
        if self.errors:
            first = self.errors[0]
            where = first.subscription if first.key is None else f"{first.subscription}#{first.key}"
            more = f" (and {len(self.errors) - 1} more)" if len(self.errors) > 1 else ""
            raise RunFailed(f"{where}: {first.text}{more}")


@dataclass(frozen=True, slots=True)
class Health:
    """Snapshot for probes; safe to read from any thread. ``reasons`` say what is not well."""

    started: bool = False
    alive: bool = True
    ready: bool = False
    draining: bool = False
    reasons: tuple[str, ...] = ()
