"""A history that a client tells becomes a transcript of ours, with its roles, calls and pictures."""

from collections.abc import Sequence
from datetime import UTC, datetime

from talaria.api.completions.incoming import pictures_of, words_of
from talaria.api.completions.wire import WireMessage
from talaria.api.pictures import Pictures
from talaria.core.ids import SessionId
from talaria.core.messages import Message, Part, Text, ToolCall, ToolResult


async def transcribed(
    messages: Sequence[WireMessage], pictures: Pictures, session_id: SessionId
) -> tuple[Message, ...]:
    """Return the messages of a new conversation.

    A call without its result, and a result without its call, are left out: models take them only together.
    """
    answered = {message.tool_call_id for message in messages if message.role == "tool"}
    called = {call.id for message in messages for call in message.tool_calls or ()}
    paired = {name for name in called if name in answered}
    found = [await _transcribed(message, paired, pictures, session_id) for message in messages]
    return tuple(message for message in found if message.parts)


async def spoken(message: WireMessage, pictures: Pictures, session_id: SessionId) -> Message:
    """Return what a person says."""
    return await _transcribed(message, set(), pictures, session_id)


async def _transcribed(message: WireMessage, paired: set[str], pictures: Pictures, session_id: SessionId) -> Message:
    now, words = datetime.now(UTC), words_of(message)
    if message.role in {"tool", "function"}:
        known = message.tool_call_id in paired
        return Message(role="tool", parts=(ToolResult(message.tool_call_id or "", words),) if known else (), at=now)
    shown = [await pictures.take_in(url, session_id) for url in pictures_of(message)]
    parts: list[Part] = [Text(words)] if words else []
    calls = [
        ToolCall(call.id, call.function.name, call.function.arguments)
        for call in message.tool_calls or ()
        if call.id in paired
    ]
    return Message(role="assistant" if message.role == "assistant" else "user", parts=(*parts, *shown, *calls), at=now)
