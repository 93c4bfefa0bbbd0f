"""Wire types of Slack's events, as far as we read them."""

from typing import Any, TypeVar

import msgspec
from msgspec import Struct

T = TypeVar("T")


class SharedFile(Struct, frozen=True):
    """A file of a message; some have a ``subtype`` for recordings made in Slack."""

    id: str = ""
    name: str = ""
    title: str = ""
    mimetype: str = ""
    size: int = 0
    subtype: str = ""
    mode: str = ""


class EditInfo(Struct, frozen=True):
    """The time of an edit."""

    ts: str = ""


class SlackMessage(Struct, frozen=True):
    """A message in a channel."""

    ts: str = ""
    user: str = ""
    bot_id: str = ""
    subtype: str = ""
    text: str = ""
    thread_ts: str = ""
    parent_user_id: str = ""
    files: tuple[SharedFile, ...] = ()
    edited: EditInfo = EditInfo()


class ReactedItem(Struct, frozen=True):
    """The target of a reaction."""

    type: str = ""
    channel: str = ""
    ts: str = ""


class AssistantThread(Struct, frozen=True):
    """A thread opened in the assistant view."""

    user_id: str = ""
    channel_id: str = ""
    thread_ts: str = ""


class Event(SlackMessage, frozen=True, kw_only=True):
    """An event; its fields depend on its ``type`` and ``subtype``."""

    type: str = ""
    channel: str = ""
    channel_type: str = ""
    event_ts: str = ""
    message: SlackMessage = SlackMessage()
    previous_message: SlackMessage = SlackMessage()
    reaction: str = ""
    item_user: str = ""
    item: ReactedItem = ReactedItem()
    assistant_thread: AssistantThread = AssistantThread()


class Callback(Struct, frozen=True):
    """The payload of an event."""

    event_id: str = ""
    event: Event = Event()


class SlashCommand(Struct, frozen=True):
    """A slash command."""

    command: str = ""
    text: str = ""
    channel_id: str = ""
    channel_name: str = ""
    user_id: str = ""
    user_name: str = ""
    trigger_id: str = ""


class SlackPerson(Struct, frozen=True):
    """The person who acted."""

    id: str = ""
    name: str = ""
    username: str = ""


class ChannelRef(Struct, frozen=True):
    """A channel by its id."""

    id: str = ""
    name: str = ""


class MessageContainer(Struct, frozen=True):
    """The message with the chosen element."""

    type: str = ""
    message_ts: str = ""
    channel_id: str = ""
    thread_ts: str = ""


class SelectedOption(Struct, frozen=True):
    """An entry of a list."""

    value: str = ""


class Action(Struct, frozen=True):
    """A pressed button, or a chosen entry of a list."""

    action_id: str = ""
    action_ts: str = ""
    value: str = ""
    selected_option: SelectedOption = SelectedOption()


class Interaction(Struct, frozen=True):
    """The use of an element below a message."""

    type: str = ""
    user: SlackPerson = SlackPerson()
    channel: ChannelRef = ChannelRef()
    container: MessageContainer = MessageContainer()
    message: SlackMessage = SlackMessage()
    actions: tuple[Action, ...] = ()


def read_payload(payload: dict[str, Any], kind: type[T]) -> T | None:
    """Return a payload as its type; ``None`` if it is something else."""
    try:
        return msgspec.convert(_remove_nulls(payload), kind, strict=False)
    except msgspec.ValidationError:
        return None


def _remove_nulls(value: Any) -> Any:
    """Remove nulls: Slack writes them for fields that other events omit."""
    if isinstance(value, dict):
        return {key: _remove_nulls(one) for key, one in value.items() if one is not None}
    if isinstance(value, list):
        return [_remove_nulls(one) for one in value]
    return value
