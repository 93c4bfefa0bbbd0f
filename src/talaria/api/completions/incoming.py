"""Translate chat completion requests into messages."""

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
from msgspec import Struct

from talaria.api.completions.wire import CreateCompletion, ImagePart, RefusalPart, TextPart, WireMessage
from talaria.api.images import ImageStore
from talaria.core.ids import SessionId
from talaria.core.messages import Message, Part, Text, ToolCall, ToolResult
from talaria.http.errors import Problem, make_unsupported

_TOOLS = "The agent uses its own tools and can't call a client's. Remove `{name}`."


_INSTRUCTION_ROLES = ("system", "developer")


class CompletionInput(Struct, frozen=True):
    """A parsed request: instructions, history, and the new message."""

    instructions: str
    history: tuple[WireMessage, ...]
    last: WireMessage


def check_supported(body: CreateCompletion) -> None:
    """Raise a `Problem` for unsupported options instead of ignoring them."""
    if body.tools:
        raise make_unsupported("tools", _TOOLS.format(name="tools"))
    if body.functions:
        raise make_unsupported("functions", _TOOLS.format(name="functions"))
    if body.n not in (None, 1):
        raise make_unsupported("n", "Each request gets one answer: `n` must be 1.")
    if body.response_format is not None and body.response_format.type != "text":
        raise make_unsupported("response_format", "The agent answers in plain text: `response_format` must be `text`.")
    if body.stop:
        raise make_unsupported("stop", "Stop sequences are not supported. Remove `stop`.")
    if body.logprobs:
        raise make_unsupported("logprobs", "Log probabilities are not available. Remove `logprobs`.")
    if body.audio is not None or (body.modalities or ["text"]) != ["text"]:
        raise make_unsupported("modalities", "The agent answers in text: `modalities` must be `text`.")


def split_messages(messages: Sequence[WireMessage]) -> CompletionInput:
    """Return the parsed messages; raises a `Problem` unless the last one is from a user."""
    entries = [get_text(message) for message in messages if message.role in _INSTRUCTION_ROLES]
    dialogue = [message for message in messages if message.role not in _INSTRUCTION_ROLES]
    if not dialogue or dialogue[-1].role != "user":
        raise Problem("The last message must have the role `user`.", param="messages", code="invalid_value")
    if not get_text(dialogue[-1]).strip() and not list_image_urls(dialogue[-1]):
        raise Problem("The last message is empty.", param="messages", code="invalid_value")
    return CompletionInput("\n\n".join(filter(None, entries)), tuple(dialogue[:-1]), dialogue[-1])


def get_text(message: WireMessage) -> str:
    """Return the text of a message, without characters that a store rejects."""
    if message.content is None or isinstance(message.content, str):
        return (message.content or "").replace("\0", "")
    return "\n".join(_get_part_text(part) for part in message.content if not isinstance(part, ImagePart)).replace(
        "\0", ""
    )


def list_image_urls(message: WireMessage) -> list[str]:
    """Return the URLs of its images."""
    parts = message.content if isinstance(message.content, list) else []
    return [part.image_url.url for part in parts if isinstance(part, ImagePart)]


def compute_fingerprint(
    caller: str, instructions: str, messages: Sequence[WireMessage], reply: str | None = None
) -> str:
    """Return the fingerprint of a history as a client sends it; ``reply`` is the last answer.

    Only words count: some clients change what is between them.
    """
    entries = [(message.role, get_text(message).split(), list_image_urls(message)) for message in messages]
    if reply is not None:
        entries.append(("assistant", reply.split(), []))
    return hashlib.sha256(msgspec.json.encode((caller, instructions, entries))).hexdigest()


def _get_part_text(part: TextPart | RefusalPart) -> str:
    return part.text if isinstance(part, TextPart) else part.refusal


async def convert_history(
    messages: Sequence[WireMessage], image_store: ImageStore, session_id: SessionId
) -> tuple[Message, ...]:
    """Return the messages of a new session.

    A call without its result, and a result without its call, are left out: models accept them only together.
    """
    result_ids = {message.tool_call_id for message in messages if message.role == "tool"}
    call_ids = {call.id for message in messages for call in message.tool_calls or ()}
    paired = {name for name in call_ids if name in result_ids}
    found = [await _convert(message, paired, image_store, session_id) for message in messages]
    return tuple(message for message in found if message.parts)


async def convert_message(message: WireMessage, image_store: ImageStore, session_id: SessionId) -> Message:
    """Return the message of the user."""
    return await _convert(message, set(), image_store, session_id)


async def _convert(message: WireMessage, paired: set[str], image_store: ImageStore, session_id: SessionId) -> Message:
    now, words = datetime.now(UTC), get_text(message)
    if message.role in {"tool", "function"}:
        known = message.tool_call_id in paired
        return Message(role="tool", parts=(ToolResult(message.tool_call_id or "", words),) if known else (), at=now)
    images = [await image_store.store_image(url, session_id) for url in list_image_urls(message)]
    parts: list[Part] = [Text(words)] if words else []
    calls = [
        ToolCall(call.id, call.function.name, call.function.arguments)
        for call in message.tool_calls or ()
        if call.id in paired
    ]
    return Message(role="assistant" if message.role == "assistant" else "user", parts=(*parts, *images, *calls), at=now)
