"""What of a conversation a model is shown: all of it, or a summary of the older part and the rest word for word.

The log is never rewritten. A summary says up to where it reaches; what it stands for can be read again by number.
"""

import logging
import zlib
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Protocol
from weakref import WeakKeyDictionary

from msgspec import Struct

from talaria.agent.conversation import said
from talaria.contracts.models import ModelInfo
from talaria.contracts.provider import EncodingMemo
from talaria.contracts.stores.messages import StoredMessage
from talaria.core.errors import MalformedReply, TalariaError
from talaria.core.events import Noticed, TurnEvent
from talaria.core.messages import Message, Text, ToolCall, text_of

_FULL = 0.75
_KEPT = 0.3
_PORTION = 0.8
_LEAST_SUMMARY = 80
_LEAST_WORDS = 0.4
_MOST_REPETITION = 10
_BYTES_PER_TOKEN = 4
_BYTES_IN_MEMORY = 2  # a message and its encoded form
_BYTES_PER_MESSAGE = 700  # what surrounds its text in memory
MEMORY_LIMIT = 64 * 1024 * 1024
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OPENING = (
    "[Summary of messages 1 to {upto} of this conversation. They are kept: read any of them again by number"
    " with session_search.]\n\n"
)

log = logging.getLogger(__name__)


class Summary(Struct, frozen=True):
    """What stands for the messages up to and including ``upto``."""

    upto: int
    text: str


class History(Protocol):
    """The stored log of one conversation, and the summary in force."""

    async def read(self, after: int) -> tuple[Summary | None, list[StoredMessage]]:
        """Return the summary in force, and the messages after both ``after`` and what it covers.

        The first time a summary is read, record that the prefix changes because of it.
        """

    async def save(self, summary: Summary) -> None:
        """Put a new summary in force, unless one that reaches as far was put there meanwhile."""


class Summariser(Protocol):
    """Writes summaries: one call of an auxiliary model."""

    async def summarise(self, earlier: str, messages: Sequence[Message]) -> str:
        """Return a summary of the messages that carries on an earlier one."""


class Window:
    """The view that one conversation's model has of it.

    What was read of the log stays in memory between turns, so that a turn reads and measures only what is new;
    `release` frees it, and the next `open` reads it again.
    """

    def __init__(
        self, info: ModelInfo, history: History, summariser: Summariser, memory: "WindowMemory | None" = None
    ) -> None:
        self.limit = info.context_limit
        self.memo = EncodingMemo()
        self._history = history
        self._summariser = summariser
        self._memory = memory or WindowMemory()
        self._summary: Summary | None = None
        self._stored: list[StoredMessage] = []
        self._view: list[Message] = []
        self._bytes = 0
        self._tokens = 0

    async def open(self) -> "View":
        """Return what the model is shown of the conversation as it is stored now."""
        summary, fresh = await self._history.read(self._stored[-1].seq if self._stored else 0)
        if summary != self._summary:
            fresh = [*self._stored, *fresh]
            self._start_from(summary)
            fresh = [stored for stored in fresh if summary is None or stored.seq > summary.upto]
        self._stored += fresh
        self._view += said(fresh)
        self._bytes += sum(length_of(stored.message) for stored in fresh)
        self._tokens = 0
        self._memory.use(self, self._bytes * _BYTES_IN_MEMORY + len(self._stored) * _BYTES_PER_MESSAGE)
        return View(list(self._view), self._bytes)

    def release(self) -> None:
        """Free what was read; the next `open` reads it again."""
        self._start_from(None)
        self._summary = None

    def measured(self, tokens: int) -> None:
        """Take note of how many tokens the last call took; 0 if the provider does not count."""
        self._tokens = tokens

    @property
    def full(self) -> bool:
        """Whether it is time to `shrink`: counted by the provider where it counts, else estimated."""
        return (self._tokens or self._bytes // _BYTES_PER_TOKEN) > self.limit * _FULL

    async def shrink(self, emit: Callable[[TurnEvent], None]) -> bool:
        """Put a summary of the older part in force; ``False``, and nothing changed, if that did not succeed."""
        if not self._stored:
            await self.open()
        upto = self._boundary()
        if upto is None:
            return False
        try:
            text = await self._summarise(upto)
        except TalariaError as error:
            log.warning("the conversation was not summarised: %s", error)
            return False
        await self._history.save(Summary(upto, text))
        emit(Noticed("Older messages are summarised from here on; nothing of them is lost."))
        return True

    async def _summarise(self, upto: int) -> str:
        """Return a summary that carries on the one in force, made in portions that a model can take at once."""
        begun, text = (self._summary.upto, self._summary.text) if self._summary else (0, "")
        older = [stored.message for stored in self._stored if begun < stored.seq <= upto]
        for portion in _portions(older, int(self.limit * _PORTION) * _BYTES_PER_TOKEN):
            most = len(text.encode()) + sum(map(length_of, portion))
            text = (await self._summariser.summarise(text, portion)).strip()
            if not _is_of_use(text, most):
                raise MalformedReply("the model gave no summary of use")
        return text

    def _boundary(self) -> int | None:
        """Return the last message to summarise: the newest third stays, and no call is parted from its result."""
        kept, budget = 0, int(self.limit * _KEPT) * _BYTES_PER_TOKEN
        begun = self._summary.upto if self._summary else 0
        for place in range(len(self._stored) - 1, 0, -1):
            stored = self._stored[place]
            if stored.seq <= begun + 1:
                return None
            kept += length_of(stored.message)
            if kept > budget and stored.message.role in ("user", "assistant"):
                return self._stored[place - 1].seq
        return None

    def _start_from(self, summary: Summary | None) -> None:
        self.memo.clear()
        self._summary, self._stored = summary, []
        self._view = [] if summary is None else [_opening(summary)]
        self._bytes = sum(map(length_of, self._view))


class View:
    """What a model is shown during a turn: the conversation so far, and what the turn adds to it."""

    def __init__(self, messages: list[Message], size: int) -> None:
        self.messages = messages
        self._size = size

    @property
    def tokens(self) -> int:
        """About how many tokens it takes."""
        return self._size // _BYTES_PER_TOKEN

    def add(self, messages: Sequence[Message]) -> None:
        """Take in what was said since."""
        self.messages += messages
        self._size += sum(map(length_of, messages))


class WindowMemory:
    """How much of the conversations of a process stays in memory between turns: the least recently used goes first."""

    def __init__(self, limit_bytes: int = MEMORY_LIMIT) -> None:
        self._limit = limit_bytes
        self._sizes: WeakKeyDictionary[Window, int] = WeakKeyDictionary()

    def use(self, window: Window, size: int) -> None:
        """Record that a conversation was used and what it takes; release others while all together take too much."""
        self._sizes.pop(window, None)
        self._sizes[window] = size
        while sum(self._sizes.values()) > self._limit and len(self._sizes) > 1:
            oldest = next(self._sizes.keys())
            del self._sizes[oldest]
            oldest.release()


def estimate(messages: Sequence[Message]) -> int:
    """Return about how many tokens messages take."""
    return sum(map(length_of, messages)) // _BYTES_PER_TOKEN


def estimate_shown(rest: Sequence[StoredMessage], summary: Summary | None) -> int:
    """Return about how many tokens a model is shown: a summary and the messages after it."""
    return estimate([*([_opening(summary)] if summary else []), *said(rest)])


def _opening(summary: Summary) -> Message:
    text = _OPENING.format(upto=summary.upto) + summary.text
    return Message(role="user", parts=(Text(text),), at=_EPOCH, author="summary")


def _portions(messages: Sequence[Message], most: int) -> Iterator[list[Message]]:
    portion: list[Message] = []
    length = 0
    for message in messages:
        length += length_of(message)
        if portion and length > most:
            yield portion
            portion, length = [], length_of(message)
        portion.append(message)
    yield portion


def _is_of_use(summary: str, most: int) -> bool:
    """Tell a summary from what models give when they fail: next to nothing, a stammer, signs without words."""
    raw = summary.encode()
    if not min(_LEAST_SUMMARY, most // _BYTES_PER_TOKEN) <= len(raw) <= most:
        return False
    visible = "".join(summary.split())
    words = sum(map(str.isalnum, visible))
    return words >= _LEAST_WORDS * len(visible) and len(raw) <= _MOST_REPETITION * len(zlib.compress(raw))


def length_of(message: Message) -> int:
    """Return about how many bytes a message takes on the wire."""
    calls = sum(len(part.arguments) + len(part.name) for part in message.parts if isinstance(part, ToolCall))
    text = text_of(message.parts)
    return (len(text) if text.isascii() else len(text.encode())) + calls + 16
