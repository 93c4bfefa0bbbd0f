"""What of a conversation a model is shown: all of it, or a summary of the older part and the rest word for word.

The log is never rewritten. A summary says up to where it reaches; what it stands for can be read again by number.
"""

import logging
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from msgspec import Struct

from talaria.agent.conversation import said
from talaria.contracts.models import ModelInfo
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
_OPENING = (
    "[Summary of messages 1 to {upto} of this conversation. They are kept: read any of them again by number"
    " with session_search.]\n\n"
)

log = logging.getLogger(__name__)


class Summary(Struct, frozen=True):
    """What stands for the messages up to and including ``upto``."""

    upto: int
    text: str


class Summaries(Protocol):
    """Where the summary in force is kept."""

    async def load(self) -> Summary | None:
        """Return the summary in force to be shown; the first time, record that the prefix changes because of it."""

    async def save(self, summary: Summary) -> None:
        """Put a new one in force, unless one that reaches as far was put there meanwhile."""


class Summariser(Protocol):
    """Writes summaries: one call of an auxiliary model."""

    async def summarise(self, earlier: str, messages: Sequence[Message]) -> str:
        """Return a summary of the messages that carries on an earlier one."""


class Window:
    """The view that one conversation's model has of it."""

    def __init__(self, info: ModelInfo, summaries: Summaries, summariser: Summariser) -> None:
        self.limit = info.context_limit
        self._summaries = summaries
        self._summariser = summariser
        self._transcript: Sequence[StoredMessage] = ()
        self._view: list[Message] = []
        self._summary: Summary | None = None
        self._tokens = 0

    async def open(self, transcript: Sequence[StoredMessage]) -> list[Message]:
        """Return what the model is shown of a transcript."""
        self._transcript = transcript
        self._summary = await self._summaries.load() if len(transcript) > 1 else None
        self._view = _view(transcript, self._summary)
        self._tokens = 0
        return list(self._view)

    def measured(self, tokens: int) -> None:
        """Take note of how many tokens the last call took; 0 if the provider does not count."""
        self._tokens = tokens

    @property
    def full(self) -> bool:
        """Whether it is time to `shrink`: counted by the provider where it counts, else estimated."""
        return (self._tokens or estimate(self._view)) > self.limit * _FULL

    async def shrink(self, emit: Callable[[TurnEvent], None]) -> bool:
        """Put a summary of the older part in force; ``False``, and nothing changed, if that did not succeed."""
        upto = self._boundary()
        if upto is None:
            return False
        try:
            text = await self._summarise(upto)
        except TalariaError as error:
            log.warning("the conversation was not summarised: %s", error)
            return False
        await self._summaries.save(Summary(upto, text))
        emit(Noticed("Older messages are summarised from here on; nothing of them is lost."))
        return True

    async def _summarise(self, upto: int) -> str:
        """Return a summary that carries on the one in force, made in portions that a model can take at once."""
        begun, text = (self._summary.upto, self._summary.text) if self._summary else (0, "")
        older = [stored.message for stored in self._transcript if begun < stored.seq <= upto]
        for portion in _portions(older, int(self.limit * _PORTION) * _BYTES_PER_TOKEN):
            most = len(text.encode()) + sum(map(_length, portion))
            text = (await self._summariser.summarise(text, portion)).strip()
            if not _is_of_use(text, most):
                raise MalformedReply("the model gave no summary of use")
        return text

    def _boundary(self) -> int | None:
        """Return the last message to summarise: the newest third stays, and no call is parted from its result."""
        kept, budget = 0, int(self.limit * _KEPT) * _BYTES_PER_TOKEN
        begun = self._summary.upto if self._summary else 0
        for place in range(len(self._transcript) - 1, 0, -1):
            stored = self._transcript[place]
            if stored.seq <= begun + 1:
                return None
            kept += _length(stored.message)
            if kept > budget and stored.message.role in ("user", "assistant"):
                return self._transcript[place - 1].seq
        return None


def estimate(messages: Sequence[Message]) -> int:
    """Return about how many tokens messages take."""
    return sum(map(_length, messages)) // _BYTES_PER_TOKEN


def estimate_shown(transcript: Sequence[StoredMessage], summary: Summary | None) -> int:
    """Return about how many tokens that takes which a model is shown of a transcript."""
    return estimate(_view(transcript, summary))


def _view(transcript: Sequence[StoredMessage], summary: Summary | None) -> list[Message]:
    if summary is None:
        return said(transcript)
    opening = Text(_OPENING.format(upto=summary.upto) + summary.text)
    rest = [stored for stored in transcript if stored.seq > summary.upto]
    return [Message(role="user", parts=(opening,), at=transcript[0].message.at, author="summary"), *said(rest)]


def _portions(messages: Sequence[Message], most: int) -> Iterator[list[Message]]:
    portion: list[Message] = []
    length = 0
    for message in messages:
        length += _length(message)
        if portion and length > most:
            yield portion
            portion, length = [], _length(message)
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


def _length(message: Message) -> int:
    """Return about how many bytes a message takes on the wire."""
    calls = sum(len(part.arguments) + len(part.name) for part in message.parts if isinstance(part, ToolCall))
    text = text_of(message.parts)
    return (len(text) if text.isascii() else len(text.encode())) + calls + 16
