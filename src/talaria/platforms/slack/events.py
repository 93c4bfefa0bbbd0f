"""What Slack hands over, as types: as much of it as concerns us."""

from typing import Any, TypeVar

import msgspec
from msgspec import Struct

T = TypeVar("T")


class SharedFile(Struct, frozen=True):
    """A file of a message; ``subtype`` says of some that they were recorded in Slack."""

    id: str = ""
    name: str = ""
    title: str = ""
    mimetype: str = ""
    size: int = 0
    subtype: str = ""
    mode: str = ""


class Edited(Struct, frozen=True):
    """When a message was changed."""

    ts: str = ""


class Said(Struct, frozen=True):
    """A message as it is in a channel."""

    ts: str = ""
    user: str = ""
    bot_id: str = ""
    subtype: str = ""
    text: str = ""
    thread_ts: str = ""
    parent_user_id: str = ""
    files: tuple[SharedFile, ...] = ()
    edited: Edited = Edited()


class Item(Struct, frozen=True):
    """What a mark hangs on."""

    type: str = ""
    channel: str = ""
    ts: str = ""


class AssistantThread(Struct, frozen=True):
    """A thread that a person has opened beside everything else."""

    user_id: str = ""
    channel_id: str = ""
    thread_ts: str = ""


class Event(Said, frozen=True, kw_only=True):
    """Something that happened; which fields it has depends on its ``type`` and ``subtype``."""

    type: str = ""
    channel: str = ""
    channel_type: str = ""
    event_ts: str = ""
    message: Said = Said()
    previous_message: Said = Said()
    reaction: str = ""
    item_user: str = ""
    item: Item = Item()
    assistant_thread: AssistantThread = AssistantThread()


class Callback(Struct, frozen=True):
    """The payload of an event."""

    event_id: str = ""
    event: Event = Event()


class Command(Struct, frozen=True):
    """A slash command."""

    command: str = ""
    text: str = ""
    channel_id: str = ""
    channel_name: str = ""
    user_id: str = ""
    user_name: str = ""
    trigger_id: str = ""


class Person(Struct, frozen=True):
    """Who did something."""

    id: str = ""
    name: str = ""
    username: str = ""


class Place(Struct, frozen=True):
    """A channel by its id."""

    id: str = ""
    name: str = ""


class Container(Struct, frozen=True):
    """The message below which something was chosen."""

    type: str = ""
    message_ts: str = ""
    channel_id: str = ""
    thread_ts: str = ""


class Choice(Struct, frozen=True):
    """An entry of a list."""

    value: str = ""


class Action(Struct, frozen=True):
    """A button that was pressed, or an entry of a list that was chosen."""

    action_id: str = ""
    action_ts: str = ""
    value: str = ""
    selected_option: Choice = Choice()


class Interaction(Struct, frozen=True):
    """What was done with what stands below a message."""

    type: str = ""
    user: Person = Person()
    channel: Place = Place()
    container: Container = Container()
    message: Said = Said()
    actions: tuple[Action, ...] = ()


def read_payload(payload: dict[str, Any], kind: type[T]) -> T | None:
    """Return a payload as its type; ``None`` where it is something else."""
    try:
        return msgspec.convert(_without_nulls(payload), kind, strict=False)
    except msgspec.ValidationError:
        return None


def _without_nulls(value: Any) -> Any:
    """Leave out what is null: Slack writes that for much that other events do not mention at all."""
    if isinstance(value, dict):
        return {key: _without_nulls(one) for key, one in value.items() if one is not None}
    if isinstance(value, list):
        return [_without_nulls(one) for one in value]
    return value
