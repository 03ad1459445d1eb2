"""Of several errors of a task group, the one that decides what to do next."""

from headrace.domain.errors import LeaseLost, Unavailable


def foremost(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the error that ended the group: a lost lease outranks an outage, an outage everything else."""
    flat = _flat(group)
    for wanted in (LeaseLost, Unavailable):
        for error in flat:
            if isinstance(error, wanted):
                return error
    return flat[0]


def _flat(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    found: list[BaseException] = []
    for error in group.exceptions:
        found.extend(_flat(error) if isinstance(error, BaseExceptionGroup) else [error])
    return found
