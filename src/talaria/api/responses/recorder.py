"""Record a response during its turn, and store it with the end of the turn."""

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack

import msgspec

from talaria.api.responses.builder import ResponseBuilder
from talaria.api.responses.wire import Response, ResponseEvent, get_event_name
from talaria.api.runs.events import RunEvent, RunEventMapper, RunFailed, TurnStarted, decode_event, to_run_end
from talaria.api.runs.followers import RunFollower
from talaria.api.turns.turn import ApiTurn
from talaria.core.errors import TalariaError
from talaria.core.events import TextAdded, ToolProgressed, TurnEnd, TurnEvent
from talaria.http.errors import to_problem
from talaria.http.routing import format_sse

INTERRUPTED = "The server is shutting down and interrupted the turn. Try again in a moment."

_encode = msgspec.json.Encoder().encode


class ResponseRecorder:
    """Follows a turn, and has its response when it ends."""

    def __init__(self, response: Response, *, thoughts: bool) -> None:
        self.ended_at = 0.0
        self._response = response
        self._thoughts = thoughts
        self._turn_events: list[TurnEvent] = []

    def handle_event(self, event: TurnEvent) -> None:
        """Process an event that is part of a response."""
        last = self._turn_events[-1] if self._turn_events else None
        if isinstance(event, TextAdded) and isinstance(last, TextAdded):
            self._turn_events[-1] = TextAdded(last.text + event.text)
        elif not isinstance(event, ToolProgressed):
            self._turn_events.append(event)

    def compose_response(self, end: TurnEnd) -> Response:
        """Return the complete response."""
        self.ended_at = self.ended_at or time.time()
        tracker = ResponseTracker(self._response, thoughts=self._thoughts)
        for event in (*self._turn_events, end):
            tracker.take(event, self.ended_at)
        return tracker.response


class ResponseTracker:
    """The view of a client on a turn, from before its start."""

    def __init__(self, response: Response, *, thoughts: bool) -> None:
        self._builder = ResponseBuilder(response, thoughts=thoughts)
        self._mapper = RunEventMapper()
        self.is_over = False
        self.begun = self._builder.take(TurnStarted(""), 0.0)

    @property
    def response(self) -> Response:
        """Return the response so far."""
        return self._builder.response

    def take(self, event: TurnEvent, at: float) -> list[ResponseEvent]:
        """Return the stream events for a turn event."""
        new_events: list[RunEvent] = [one for one in self._mapper.map_event(event) if not isinstance(one, TurnStarted)]
        if isinstance(event, TurnEnd):
            new_events.append(to_run_end(event))
            self.is_over = True
        return self._build_events(new_events, at)

    def fail_unfinished(self, reason: str) -> list[ResponseEvent]:
        """Return the events for a turn that doesn't end here; none if it did."""
        return [] if self.is_over else self._build_events([RunFailed(reason, "failed")], time.time())

    def _build_events(self, new_events: Sequence[RunEvent], at: float) -> list[ResponseEvent]:
        return [one for event in new_events for one in self._builder.take(event, at)]


class TurnResponseStream:
    """Implements `Stream`: the response of a running turn; closing ``stack`` leaves the turn."""

    def __init__(
        self, turn: ApiTurn, tracker: ResponseTracker, recorder: ResponseRecorder, stack: AsyncExitStack
    ) -> None:
        self._turn = turn
        self._stack = stack
        self._tracker = tracker
        self._recorder = recorder

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield encode_events(self._tracker.begun)
        try:
            async for event in self._turn:
                new_events = self._tracker.take(event, self._recorder.ended_at or time.time())
                if new_events:
                    yield encode_events(new_events)
            rest = self._tracker.fail_unfinished(INTERRUPTED)
        except TalariaError as error:
            rest = self._tracker.fail_unfinished(str(to_problem(error)))
        if rest:
            yield encode_events(rest)

    @property
    def is_whole(self) -> bool:
        """Return whether the turn has ended."""
        return self._tracker.is_over

    async def close(self) -> None:
        """Stop the turn unless it has ended."""
        await self._stack.aclose()


class RunResponseStream:
    """The stream of a background response, after number ``after``."""

    def __init__(self, follower: RunFollower, builder: ResponseBuilder, after: int) -> None:
        self._follower = follower
        self._builder = builder
        self._after = after

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for page in self._follower:
            new_events = [
                one for event in page.events for one in self._builder.take(decode_event(event), event.at.timestamp())
            ]
            fresh = [one for one in new_events if one.sequence_number > self._after]
            if fresh:
                yield encode_events(fresh)

    @property
    def is_whole(self) -> bool:
        """Return whether the run is over."""
        return self._follower.is_over

    async def close(self) -> None:
        """Stop listening."""
        await self._follower.close()


def encode_events(new_events: list[ResponseEvent]) -> bytes:
    """Return encoded stream events."""
    return b"".join(format_sse(_encode(one), event=get_event_name(one)) for one in new_events)
