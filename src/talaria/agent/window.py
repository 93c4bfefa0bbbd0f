"""What of a conversation a model is shown: all of it, or a summary of the older part and the rest word for word.

The log is never rewritten. A summary says up to where it reaches; what it stands for can be read again by number.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec import Struct

from talaria.agent.conversation import said
from talaria.contracts.models import ModelInfo
from talaria.contracts.stores.messages import StoredMessage
from talaria.core.errors import TalariaError
from talaria.core.events import Noticed, TurnEvent
from talaria.core.messages import Message, Text, ToolCall, text_of

_FULL = 0.75
_KEPT = 0.3
_LEAST_SUMMARY = 80
_CHARACTERS_PER_TOKEN = 4
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
        """Return the summary in force."""

    async def save(self, summary: Summary) -> None:
        """Put a new one in force, and record that the prefix changes because of it."""


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
        self._summary: Summary | None = None
        self._tokens = 0

    async def open(self, transcript: Sequence[StoredMessage]) -> list[Message]:
        """Return what the model is shown of a transcript."""
        self._transcript = transcript
        self._summary = await self._summaries.load()
        if self._summary is None:
            return said(transcript)
        opening = Text(_OPENING.format(upto=self._summary.upto) + self._summary.text)
        rest = [stored for stored in transcript if stored.seq > self._summary.upto]
        at = transcript[0].message.at
        return [Message(role="user", parts=(opening,), at=at, author="summary"), *said(rest)]

    def measured(self, tokens: int) -> None:
        """Take note of how many tokens the last call took."""
        self._tokens = tokens

    @property
    def full(self) -> bool:
        """Whether it is time to `shrink`: counted by the provider where it counts, else estimated."""
        tokens = self._tokens or estimate(said(self._transcript))
        return tokens > self.limit * _FULL

    async def shrink(self, emit: Callable[[TurnEvent], None]) -> bool:
        """Put a summary of the older part in force; ``False``, and nothing changed, if that did not succeed."""
        upto = self._boundary()
        if upto is None:
            return False
        begun = self._summary.upto if self._summary else 0
        older = [stored.message for stored in self._transcript if begun < stored.seq <= upto]
        try:
            text = await self._summariser.summarise(self._summary.text if self._summary else "", older)
        except TalariaError as error:
            log.warning("the conversation was not summarised: %s", error)
            return False
        if len(text.strip()) < min(_LEAST_SUMMARY, estimate(older)):
            log.warning("the conversation was not summarised: the model gave nothing usable")
            return False
        await self._summaries.save(Summary(upto, text.strip()))
        emit(Noticed("Older messages are summarised from here on; nothing of them is lost."))
        return True

    def _boundary(self) -> int | None:
        """Return the last message to summarise: the newest third stays, and no call is parted from its result."""
        kept, budget = 0, int(self.limit * _KEPT) * _CHARACTERS_PER_TOKEN
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
    return sum(map(_length, messages)) // _CHARACTERS_PER_TOKEN


def _length(message: Message) -> int:
    calls = sum(len(part.arguments) + len(part.name) for part in message.parts if isinstance(part, ToolCall))
    return len(text_of(message.parts)) + calls + 16
