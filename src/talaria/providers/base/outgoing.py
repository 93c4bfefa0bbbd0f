"""Requests of all protocols: repair the transcript, load attachments, encode what is new in a conversation.

In a repaired transcript every call is answered, every result follows its call, and nothing is empty.
"""

import asyncio
import base64
import hashlib
import re
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

import msgspec
from msgspec import Raw

from talaria.contracts.provider import ModelRequest
from talaria.core.messages import File, Image, Message, Part, Reasoning, Text, ToolCall, ToolResult

INTERRUPTED = "Interrupted: the outcome of this call is unknown."
OPENING = "(The conversation begins with you.)"
NO_ANSWER = "(No answer yet.)"
MAX_BYTES = 20 * 1024 * 1024
W = TypeVar("W")

_encode = msgspec.json.Encoder().encode


def repair(messages: Sequence[Message], mark: str) -> list[Message]:
    """Return the repaired messages of a whole transcript."""
    repaired = RepairedTranscript(mark)
    for message in messages:
        repaired.add(message)
    return repaired.rest()


class RepairedTranscript:
    """A transcript in an order and form that all protocols accept, which grows message by message.

    An assistant message with calls is followed by exactly one message of role ``tool``: a result for each call, in
    order, then the images and files that came with them. A call without a result gets one that says so; a result
    without a call is left out, as is reasoning whose signature doesn't start with ``mark``. Growing the transcript
    changes nothing in front, except that a missing result is replaced when it comes.
    """

    def __init__(self, mark: str) -> None:
        self._mark = mark
        self._entries: deque[Message | _Exchange] = deque()
        self._open_calls: dict[str, _Exchange] = {}

    def add(self, message: Message) -> None:
        """Add the next message."""
        if message.role == "tool":
            _assign_results(message, self._open_calls)
            return
        parts = tuple(part for part in message.parts if _is_sendable(part, message.role, self._mark))
        if not any(not isinstance(part, Reasoning) for part in parts):
            return
        is_whole = len(parts) == len(message.parts)
        self._entries.append(message if is_whole else msgspec.structs.replace(message, parts=parts))
        if exchange := _Exchange.of(message, parts):
            self._entries.append(exchange)
            self._open_calls.update(dict.fromkeys(exchange.calls, exchange))

    def take_final(self) -> Iterator[Message]:
        """Yield and drop the messages that can't change any more, up to the first call without a result."""
        while self._entries and _is_final(self._entries[0]):
            yield _to_message(self._entries.popleft())

    def rest(self) -> list[Message]:
        """Return all remaining messages in their current form."""
        return [_to_message(entry) for entry in self._entries]


class ConversationEncoder(ABC, Generic[W]):
    """Encodes the requests of one conversation with one account; ``W`` is the wire type of a message.

    Messages are added once and only their bytes are kept, except for the last ``LOOSE`` of them, which a later message
    may join or a protocol may mark. The bytes equal those of an encoder that sees the whole conversation for the first
    time.
    """

    LOOSE: ClassVar[int] = 1

    def __init__(self, mark: str) -> None:
        self._mark = mark
        self._messages: tuple[Message, ...] = ()
        self._repaired = RepairedTranscript(mark)
        self._settled: list[Raw] = []
        self._loose: list[W] = []

    def find_new_messages(self, messages: tuple[Message, ...]) -> tuple[Message, ...]:
        """Return the messages to add; all of them if they don't continue the earlier ones."""
        known = len(self._messages)
        if messages[:known] != self._messages:
            self._restart()
            known = 0
        return messages[known:]

    def take(self, messages: tuple[Message, ...], loaded: Iterable[Message]) -> None:
        """Add the new part of ``messages``; ``loaded`` is that part with its attachments loaded."""
        self._messages = messages
        for message in loaded:
            self._repaired.add(message)
        for message in self._repaired.take_final():
            self._append(message, self._loose)
        surplus = len(self._loose) - self.LOOSE
        if surplus > 0:
            self._settled += [Raw(_encode(wire)) for wire in self._loose[:surplus]]
            del self._loose[:surplus]

    def encode_messages(self) -> tuple[list[Raw], list[W]]:
        """Return the conversation in wire form: fixed bytes, then messages that may change."""
        loose = list(self._loose)
        for message in self._repaired.rest():
            self._append(message, loose)
        return self._settled, loose

    async def encode_whole(self, request: ModelRequest, shows: Callable[[Image | File], bool]) -> bytes:
        """Return the body of a request, with its new messages and the attachments that the server ``shows``."""
        self.take(request.messages, await load_attachments(self.find_new_messages(request.messages), shows))
        return self.encode(request)

    @abstractmethod
    def encode(self, request: ModelRequest) -> bytes:
        """Return the body of a request whose messages were added."""

    @abstractmethod
    def _encode_message(self, message: Message) -> Iterable[W]:
        """Return a repaired message in wire form."""

    def _join(self, last: W | None, new: W) -> Sequence[W]:
        """Return the replacement of the last message when a new one comes; neither is changed in place."""
        return (new,) if last is None else (last, new)

    def _append(self, message: Message, loose: list[W]) -> None:
        for wire in self._encode_message(message):
            loose[-1:] = self._join(loose[-1] if loose else None, wire)

    def _restart(self) -> None:
        self._repaired = RepairedTranscript(self._mark)
        self._settled, self._loose = [], []


def reasoning_mark(protocol: str, provider: str) -> str:
    """Return the prefix of this provider's reasoning signatures, so that no other provider gets them."""
    return f"{protocol}@{provider}:"


def describe_attachment(part: Image | File) -> str:
    """Return a description of an attachment that the protocol doesn't accept."""
    kind, name = ("file", part.name) if isinstance(part, File) else ("picture", "")
    source = "" if part.source.startswith("data:") else part.source
    return " ".join(word for word in (f"[{kind}", name, f"({part.media_type})", source) if word) + "]"


def split_data_uri(uri: str) -> tuple[str, str]:
    """Return media type and base64 text of a ``data:`` URL."""
    head, _, data = uri.removeprefix("data:").partition(",")
    media_type, *flags = head.split(";")
    if "base64" not in flags:
        data = base64.b64encode(data.encode()).decode()
    return media_type or "text/plain", data


def wire_call_id(call_id: str, allowed: re.Pattern[str], length: int) -> str:
    """Return ``call_id`` if the protocol allows it, otherwise a fixed substitute of ``length`` characters."""
    if allowed.fullmatch(call_id):
        return call_id
    return hashlib.sha256(call_id.encode()).hexdigest()[:length]


class _Exchange:
    """The calls of one message and their results."""

    def __init__(self, asked: Message, calls: Iterable[str]) -> None:
        self.calls = dict.fromkeys(calls)
        self._asked = asked
        self._results: dict[str, ToolResult] = {}
        self._attachments: list[Part] = []

    @classmethod
    def of(cls, message: Message, parts: Sequence[Part]) -> "_Exchange | None":
        """Return the exchange started by a message, if it has calls."""
        calls = [part.id for part in parts if isinstance(part, ToolCall)]
        return cls(message, calls) if calls and message.role == "assistant" else None

    @property
    def is_complete(self) -> bool:
        """Return whether every call has its result."""
        return len(self._results) == len(self.calls)

    def answer(self, result: ToolResult) -> bool:
        """Add a result; return whether it is the first for its call."""
        is_first = result.call_id not in self._results
        self._results.setdefault(result.call_id, result)
        return is_first

    def attach(self, parts: Iterable[Part]) -> None:
        """Add an attachment of a result."""
        self._attachments.extend(parts)

    def message(self) -> Message:
        """Return the results as one message."""
        results = [self._results.get(call) or ToolResult(call, INTERRUPTED, failed=True) for call in self.calls]
        return Message(role="tool", parts=(*results, *self._attachments), at=self._asked.at)


def _assign_results(message: Message, open_calls: dict[str, _Exchange]) -> None:
    exchange: _Exchange | None = None
    for part in message.parts:
        if isinstance(part, ToolResult) and part.call_id in open_calls and open_calls[part.call_id].answer(part):
            exchange = open_calls[part.call_id]
    if exchange is None:
        return
    exchange.attach(part for part in message.parts if _is_attachment(part))
    for call in [call for call, one in open_calls.items() if one.is_complete]:
        del open_calls[call]


def _is_final(entry: "Message | _Exchange") -> bool:
    return isinstance(entry, Message) or entry.is_complete


def _to_message(entry: "Message | _Exchange") -> Message:
    return entry if isinstance(entry, Message) else entry.message()


def _is_attachment(part: Part) -> bool:
    return isinstance(part, Image | File) or (isinstance(part, Text) and bool(part.text.strip()))


def _is_sendable(part: Part, role: str, mark: str) -> bool:
    match part:
        case Text():
            return bool(part.text.strip())
        case Reasoning():
            return role == "assistant" and part.signature.startswith(mark)
        case ToolCall():
            return role == "assistant"
        case ToolResult():
            return False
        case _:
            return True


async def load_attachments(
    messages: Sequence[Message], should_load: Callable[[Image | File], bool]
) -> tuple[Message, ...]:
    """Return the messages with viewable local files as ``data:`` URLs; unreadable ones are described in words."""
    if not any(_is_local(part) and should_load(part) for message in messages for part in _list_attachments(message)):
        return tuple(messages)
    return await asyncio.to_thread(_load, messages, should_load)


def _load(messages: Sequence[Message], should_load: Callable[[Image | File], bool]) -> tuple[Message, ...]:
    return tuple(
        msgspec.structs.replace(message, parts=tuple(_load_attachment(part, should_load) for part in message.parts))
        for message in messages
    )


def _load_attachment(part: Part, should_load: Callable[[Image | File], bool]) -> Part:
    if not isinstance(part, Image | File) or not _is_local(part) or not should_load(part):
        return part
    path = Path(part.source.removeprefix("file://"))
    try:
        if path.stat().st_size > MAX_BYTES:
            return Text(f"{describe_attachment(part)} is too large to show.")
        data = base64.b64encode(path.read_bytes()).decode()
    except (OSError, ValueError):
        return Text(f"{describe_attachment(part)} is no longer readable.")
    return msgspec.structs.replace(part, source=f"data:{part.media_type};base64,{data}")


def _list_attachments(message: Message) -> list[Image | File]:
    return [part for part in message.parts if isinstance(part, Image | File)]


def _is_local(part: Image | File) -> bool:
    return not part.source.startswith(("http://", "https://", "data:"))
