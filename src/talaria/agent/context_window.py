"""The context window: what a model sees of a session, all of it or a summary plus recent messages.

The transcript is never rewritten. A summary records how far it reaches; the originals can be read by number.
"""

import logging
import zlib
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Protocol
from weakref import WeakKeyDictionary

from talaria.contracts.provider import EncodingMemo, ModelInfo
from talaria.contracts.stores.sessions import StoredMessage
from talaria.contracts.turns import HistoryPage, Summary
from talaria.core.errors import MalformedReply, TalariaError
from talaria.core.events import Noticed, TurnEvent
from talaria.core.messages import Image, Message, Text, ToolCall, ToolResult, label_message


def list_open_calls(messages: Sequence[Message]) -> list[ToolCall]:
    """Return the calls of the last reply that have no result yet."""
    answered: set[str] = set()
    for message in reversed(messages):
        answered |= {part.call_id for part in message.parts if isinstance(part, ToolResult)}
        if message.role == "assistant":
            return [part for part in message.parts if isinstance(part, ToolCall) and part.id not in answered]
    return []


def make_results_message(results: Sequence[ToolResult], at: datetime) -> Message:
    """Return the results of one reply's calls as a message of the transcript."""
    return Message(role="tool", parts=tuple(results), at=at)


def make_pictures_message(images: Sequence[Image], at: datetime) -> Message:
    """Return the images of tools as a message; no protocol accepts images in every kind of result."""
    return Message(role="user", parts=(Text("Images from the tools:"), *images), at=at, author="tools")


def unwrap_messages(messages: Sequence[StoredMessage]) -> list[Message]:
    """Return stored messages without their numbers."""
    return [stored.message for stored in messages]


_FULL_SHARE = 0.75
_KEPT_SHARE = 0.3
_PORTION_SHARE = 0.8
_MIN_SUMMARY_BYTES = 80
_MIN_ALPHANUMERIC = 0.4
_MAX_COMPRESSION = 10
_BYTES_PER_TOKEN = 4
_BYTES_IN_MEMORY = 2  # a message and its encoded form
_BYTES_PER_MESSAGE = 700  # memory overhead of a text
MEMORY_LIMIT = 64 * 1024 * 1024
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OPENING = (
    "[Summary of messages 1 to {upto} of this conversation. The originals are stored: read them by number with "
    "session_search.]\n\n"
)
log = logging.getLogger(__name__)


class History(Protocol):
    """The stored transcript of a session, and its current summary."""

    async def read(self, after: int) -> tuple[Summary | None, list[StoredMessage]]:
        """Return the current summary, and the messages after both ``after`` and its end.

        The first time a summary is read, record that the prefix changes because of it.
        """

    async def save(self, summary: Summary) -> None:
        """Store a new summary, unless another one that reaches as far was stored meanwhile."""


class Summariser(Protocol):
    """Writes summaries with one auxiliary model call."""

    async def summarise(self, earlier: str, messages: Sequence[Message]) -> str:
        """Return a summary of the messages that continues an earlier one."""


class ContextWindow:
    """The model's view of one session.

    The transcript stays in memory between turns, so that a turn reads and measures only what is new; `release` frees
    it, and the next `open` reads it again. ``full`` says whether it is time to `compact`: by the provider's count if
    available, otherwise estimated. With ``labelled``, messages of people are shown with their authors.
    """

    def __init__(
        self,
        info: ModelInfo,
        history: History,
        summariser: Summariser,
        memory: "WindowMemory | None" = None,
        *,
        labelled: bool = False,
    ) -> None:
        self._labelled = labelled
        self.limit = info.context_limit
        self.memo = EncodingMemo()
        self._history = history
        self._summariser = summariser
        self._memory = memory or WindowMemory()
        self._summary: Summary | None = None
        self._stored: list[StoredMessage] = []
        self._view: list[Message] = []
        self._bytes = 0
        self.full = False

    @property
    def last_seq(self) -> int:
        """The number of the last message in memory; 0 if there is none."""
        return self._stored[-1].seq if self._stored else 0

    async def open(self, page: HistoryPage | None = None) -> "ContextView":
        """Return what the model sees of the session as it is stored now.

        ``page`` was read of it just now, after what was in memory then.
        """
        if page is not None and page.after == self.last_seq:
            summary, fresh = page.summary, page.messages
        else:
            summary, fresh = await self._history.read(self.last_seq)
        if summary != self._summary:
            fresh = [*self._stored, *fresh]
            self._reset_to(summary)
            fresh = [stored for stored in fresh if summary is None or stored.seq > summary.upto]
        self._stored += fresh
        self._view += [label_message(one.message) for one in fresh] if self._labelled else unwrap_messages(fresh)
        self._bytes += sum(message_length(stored.message) for stored in fresh)
        self.record_tokens(0)
        self._memory.use(self, self._bytes * _BYTES_IN_MEMORY + len(self._stored) * _BYTES_PER_MESSAGE)
        return ContextView(list(self._view), self._bytes, labelled=self._labelled)

    def release(self) -> None:
        """Free the memory; the next `open` reads the transcript again."""
        self._reset_to(None)
        self._summary = None

    def record_tokens(self, tokens: int) -> None:
        """Record the tokens of the last call; 0 if the provider doesn't count."""
        self.full = (tokens or self._bytes // _BYTES_PER_TOKEN) > self.limit * _FULL_SHARE

    async def compact(self, publish: Callable[[TurnEvent], None]) -> bool:
        """Replace the older part by a summary; ``False``, with nothing changed, if that failed."""
        if not self._stored:
            await self.open()
        upto = self._find_boundary()
        if upto is None:
            return False
        try:
            text = await self._summarise(upto)
        except TalariaError as error:
            log.warning("couldn't summarise the conversation: %s", error)
            return False
        await self._history.save(Summary(upto, text))
        publish(Noticed("From here on I work with a summary of the older messages. The full history is still stored."))
        return True

    async def _summarise(self, upto: int) -> str:
        """Return a summary that continues the current one, made in portions that fit a model call."""
        summarised_to, text = (self._summary.upto, self._summary.text) if self._summary else (0, "")
        older = [stored.message for stored in self._stored if summarised_to < stored.seq <= upto]
        for portion in _split_portions(older, int(self.limit * _PORTION_SHARE) * _BYTES_PER_TOKEN):
            max_bytes = len(text.encode()) + sum(map(message_length, portion))
            text = (await self._summariser.summarise(text, portion)).strip()
            if not _is_useful(text, max_bytes):
                raise MalformedReply("the model returned no usable summary")
        return text

    def _find_boundary(self) -> int | None:
        """Return the last message to summarise: the newest third stays, and no call is separated from its result."""
        kept_bytes, budget = 0, int(self.limit * _KEPT_SHARE) * _BYTES_PER_TOKEN
        summarised_to = self._summary.upto if self._summary else 0
        for index in range(len(self._stored) - 1, 0, -1):
            stored = self._stored[index]
            if stored.seq <= summarised_to + 1:
                return None
            kept_bytes += message_length(stored.message)
            if kept_bytes > budget and stored.message.role in ("user", "assistant"):
                return self._stored[index - 1].seq
        return None

    def _reset_to(self, summary: Summary | None) -> None:
        self.memo.clear()
        self._summary, self._stored = summary, []
        self._view = [] if summary is None else [_make_summary_message(summary)]
        self._bytes = sum(map(message_length, self._view))


class ContextView:
    """The context of a model during a turn: the session so far, and the messages of the turn.

    ``tokens`` is their approximate number of tokens. ``open_calls`` are the calls of the last reply that had no result
    when the view was made.
    """

    def __init__(self, messages: list[Message], size: int, *, labelled: bool = False) -> None:
        self.messages = messages
        self._labelled = labelled
        self.open_calls = list_open_calls(messages)
        self._size = size
        self.tokens = size // _BYTES_PER_TOKEN

    def add(self, messages: Sequence[Message]) -> None:
        """Add new messages."""
        self.messages += map(label_message, messages) if self._labelled else messages
        self._size += sum(map(message_length, messages))
        self.tokens = self._size // _BYTES_PER_TOKEN


class WindowMemory:
    """Memory used by the sessions of a process between turns: least recently used first to be released."""

    def __init__(self, limit_bytes: int = MEMORY_LIMIT) -> None:
        self._limit = limit_bytes
        self._sizes: WeakKeyDictionary[ContextWindow, int] = WeakKeyDictionary()
        self._most = 0  # bytes: at least the total, because sessions that were freed still count

    def use(self, window: ContextWindow, size: int) -> None:
        """Record the use and size of a session; release others while the total is too large."""
        self._most += size - self._sizes.pop(window, 0)
        self._sizes[window] = size
        if self._most > self._limit:
            self._most = sum(self._sizes.values())
        while self._most > self._limit and len(self._sizes) > 1:
            oldest = next(self._sizes.keys())
            self._most -= self._sizes.pop(oldest)
            oldest.release()


def estimate_tokens(messages: Sequence[Message]) -> int:
    """Return the approximate number of tokens of messages."""
    return sum(map(message_length, messages)) // _BYTES_PER_TOKEN


def estimate_shown(rest: Sequence[StoredMessage], summary: Summary | None) -> int:
    """Return the approximate number of tokens of a summary and the messages after it."""
    return estimate_tokens([*([_make_summary_message(summary)] if summary else []), *unwrap_messages(rest)])


def _make_summary_message(summary: Summary) -> Message:
    text = _OPENING.format(upto=summary.upto) + summary.text
    return Message(role="user", parts=(Text(text),), at=_EPOCH, author="summary")


def _split_portions(messages: Sequence[Message], max_bytes: int) -> Iterator[list[Message]]:
    portion: list[Message] = []
    length = 0
    for message in messages:
        length += message_length(message)
        if portion and length > max_bytes:
            yield portion
            portion, length = [], message_length(message)
        portion.append(message)
    yield portion


def _is_useful(summary: str, max_bytes: int) -> bool:
    """Return whether a summary is usable, not the output of a failing model: almost empty, repetitive, no words."""
    raw = summary.encode()
    if not min(_MIN_SUMMARY_BYTES, max_bytes // _BYTES_PER_TOKEN) <= len(raw) <= max_bytes:
        return False
    visible = "".join(summary.split())
    alphanumeric = sum(map(str.isalnum, visible))
    return alphanumeric >= _MIN_ALPHANUMERIC * len(visible) and len(raw) <= _MAX_COMPRESSION * len(zlib.compress(raw))


def message_length(message: Message) -> int:
    """Return the approximate size of a message on the wire, in bytes."""
    length, texts = 16, 0
    for part in message.parts:
        if isinstance(part, Text | ToolResult):
            length += len(part.text) if part.text.isascii() else len(part.text.encode())
            texts += 1
        elif isinstance(part, ToolCall):
            length += len(part.arguments) + len(part.name)
    return length + max(texts - 1, 0)
