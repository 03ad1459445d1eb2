"""One name for one event: the code that appends a model and the code that handles it mean the same type."""

from typing import cast

from pydantic import BaseModel

from headrace.runtime.event_store import EventStore
from headrace.store.events import PostgresEvents
from headrace.subscribers.declare import event_type_name
from headrace.testing.appending import MemoryEvents
from headrace.testing.clock import ManualClock
from headrace.testing.memory import MemoryStore


class Triage(BaseModel):
    """An event whose name is no name of a class."""

    __event_type__ = "ER Triage"
    resource: str


class Released(BaseModel):
    """An event that is named as its class is."""

    resource: str


async def test_a_model_is_appended_under_the_name_by_which_it_is_handled() -> None:
    """`__event_type__` names the event for the append as it does for `@on(Model)`; without it the class does."""
    events = MemoryEvents(MemoryStore(ManualClock()))

    await EventStore(cast("PostgresEvents", events)).append("patient-1", [Triage(resource="A"), Released(resource="E")])

    stored = (await events.read()).events
    assert [event.type for event in stored] == ["ER Triage", "Released"]
    assert [event.type for event in stored] == [event_type_name(Triage), event_type_name(Released)]
