"""Pure questions about a transcript: what is open in it, and what of it a model is shown."""

from collections.abc import Sequence
from datetime import datetime

from talaria.contracts.stores.messages import StoredMessage
from talaria.core.messages import Image, Message, Text, ToolCall, ToolResult


def open_calls(messages: Sequence[Message]) -> list[ToolCall]:
    """Return the calls of the last reply that have no result yet."""
    answered: set[str] = set()
    for message in reversed(messages):
        answered |= {part.call_id for part in message.parts if isinstance(part, ToolResult)}
        if message.role == "assistant":
            return [part for part in message.parts if isinstance(part, ToolCall) and part.id not in answered]
    return []


def awaits_reply(messages: Sequence[Message]) -> bool:
    """Tell whether the model has the next word: a person or a tool spoke last."""
    return bool(messages) and messages[-1].role in ("user", "tool")


def calls_in(message: Message) -> list[ToolCall]:
    """Return the tool calls of a reply."""
    return [part for part in message.parts if isinstance(part, ToolCall)]


def results_message(results: Sequence[ToolResult], at: datetime) -> Message:
    """Return the results of one reply's calls as a message of the transcript."""
    return Message(role="tool", parts=tuple(results), at=at)


def pictures_message(images: Sequence[Image], at: datetime) -> Message:
    """Return what tools want the model to see; no protocol takes pictures in every kind of result."""
    return Message(role="user", parts=(Text("Pictures from the tools:"), *images), at=at, author="tools")


def said(messages: Sequence[StoredMessage]) -> list[Message]:
    """Return stored messages without their places."""
    return [stored.message for stored in messages]
