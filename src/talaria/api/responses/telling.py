"""Tell a response while its turn is taken, and keep it with the end of the turn."""

import time
from collections.abc import AsyncIterator, Sequence

import msgspec

from talaria.api.http import sse
from talaria.api.problems import problem_of
from talaria.api.responses.composing import Composition
from talaria.api.responses.stream_events import ResponseEvent, name_of
from talaria.api.responses.wire import Response
from talaria.api.runs.events import RunEvent, RunFailed, TurnStarted, unpacked
from talaria.api.runs.following import Following
from talaria.api.runs.telling import Telling, ending_of
from talaria.api.turns import Turn
from talaria.core.errors import TalariaError
from talaria.core.events import TextAdded, ToolProgressed, TurnEnd, TurnEvent

CUT_OFF = "The turn was cut off, since the server ends. Ask again in a moment."

_encode = msgspec.json.Encoder().encode


class Scribe:
    """Hears a turn as it happens, and knows the response that came of it when it ends."""

    def __init__(self, response: Response, *, thoughts: bool) -> None:
        self.ended_at = 0.0
        self._response = response
        self._thoughts = thoughts
        self._happened: list[TurnEvent] = []

    def hear(self, event: TurnEvent) -> None:
        """Take an event, as far as a response tells of it."""
        last = self._happened[-1] if self._happened else None
        if isinstance(event, TextAdded) and isinstance(last, TextAdded):
            self._happened[-1] = TextAdded(last.text + event.text)
        elif not isinstance(event, ToolProgressed):
            self._happened.append(event)

    def composed(self, end: TurnEnd) -> Response:
        """Return the whole response."""
        self.ended_at = self.ended_at or time.time()
        account = Account(self._response, thoughts=self._thoughts)
        for event in (*self._happened, end):
            account.take(event, self.ended_at)
        return account.response


class Account:
    """What a client is told of a turn; it begins before the turn does."""

    def __init__(self, response: Response, *, thoughts: bool) -> None:
        self._composition = Composition(response, thoughts=thoughts)
        self._telling = Telling()
        self.is_over = False
        self.begun = self._composition.take(TurnStarted(""), 0.0)

    @property
    def response(self) -> Response:
        """The response so far."""
        return self._composition.response

    def take(self, event: TurnEvent, at: float) -> list[ResponseEvent]:
        """Return what there is to tell of an event."""
        told: list[RunEvent] = [one for one in self._telling.tell(event) if not isinstance(one, TurnStarted)]
        if isinstance(event, TurnEnd):
            told.append(ending_of(event))
            self.is_over = True
        return self._told(told, at)

    def give_up(self, why: str) -> list[ResponseEvent]:
        """Return what there is to tell of a turn that comes to no end here; nothing if it did."""
        return [] if self.is_over else self._told([RunFailed(why, "failed")], time.time())

    def _told(self, told: Sequence[RunEvent], at: float) -> list[ResponseEvent]:
        return [one for event in told for one in self._composition.take(event, at)]


class TurnStream:
    """Implements `Stream`: a response that grows with its turn."""

    def __init__(self, turn: Turn, account: Account, scribe: Scribe) -> None:
        self._turn = turn
        self._account = account
        self._scribe = scribe

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield written(self._account.begun)
        try:
            async for event in self._turn:
                told = self._account.take(event, self._scribe.ended_at or time.time())
                if told:
                    yield written(told)
            rest = self._account.give_up(CUT_OFF)
        except TalariaError as error:
            rest = self._account.give_up(str(problem_of(error)))
        if rest:
            yield written(rest)

    @property
    def is_whole(self) -> bool:
        """Whether the turn has come to its end."""
        return self._account.is_over

    async def close(self) -> None:
        """Stop the turn, if it is not over."""
        await self._turn.leave()


class RunStream:
    """Implements `Stream`: a response that is worked on without its client, behind number ``after``."""

    def __init__(self, following: Following, composition: Composition, after: int) -> None:
        self._following = following
        self._composition = composition
        self._after = after

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for page in self._following:
            told = [one for event in page for one in self._composition.take(unpacked(event), event.at.timestamp())]
            fresh = [one for one in told if one.sequence_number > self._after]
            if fresh:
                yield written(fresh)

    @property
    def is_whole(self) -> bool:
        """Whether the run is over."""
        return self._following.is_over

    async def close(self) -> None:
        """Stop listening."""
        await self._following.close()


def written(told: list[ResponseEvent]) -> bytes:
    """Return events as they are sent."""
    return b"".join(sse(_encode(one), event=name_of(one)) for one in told)
