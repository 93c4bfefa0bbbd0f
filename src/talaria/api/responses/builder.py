"""Build a response from turn events: its items and its stream events."""

from collections.abc import Iterable
from typing import assert_never

from msgspec import structs

from talaria.api.files import ApiFile
from talaria.api.responses import stream_events
from talaria.api.responses.items import MessageBuilder, OutputItems, ReasoningBuilder
from talaria.api.responses.stream_events import ResponseEvent
from talaria.api.responses.wire import (
    IncompleteDetails,
    InputTokensDetails,
    OutputTokensDetails,
    Response,
    ResponseError,
    ResponseUsage,
)
from talaria.api.runs import events
from talaria.api.runs.events import RunEvent
from talaria.core.messages import Usage


class ResponseBuilder:
    """A response under construction.

    The same events give the same response with the same numbers, in any process: an interrupted stream can resume after
    any number. ``thoughts`` means that the client wants the model's reasoning.
    """

    def __init__(self, response: Response, *, thoughts: bool = False) -> None:
        self.response = response
        self._items = OutputItems(response.id.removeprefix("resp_"))
        self._thoughts = thoughts
        self._open: MessageBuilder | ReasoningBuilder | None = None
        self._files: tuple[ApiFile, ...] = ()  # those that come with the next message
        self._next_number = 0
        self._is_created = False

    def take(self, event: RunEvent, at: float) -> list[ResponseEvent]:
        """Return the stream events for a turn event at this time, in seconds since 1970."""
        fresh = list(self._map_event(event, at))
        for one in fresh:
            one.sequence_number = self._next_number
            self._next_number += 1
        return fresh

    def whole(self) -> Response:
        """Return the response with its complete items."""
        return structs.replace(self.response, output=self._items.done)

    def _map_event(self, event: RunEvent, at: float) -> Iterable[ResponseEvent]:
        match event:
            case events.RunQueued():
                yield from self._begin("queued")
            case events.TurnStarted():
                yield from self._begin("in_progress")
            case events.TurnResumed():
                self._restart_open()
            case events.ModelUsed(usage=usage):
                self.response = structs.replace(self.response, usage=_add_usage(self.response.usage, usage))
            case events.RunCompleted() | events.RunFailed() | events.RunStopped():
                yield from self._end(event, at)
            case _:
                yield from self._map_output(event)

    def _map_output(self, event: RunEvent) -> Iterable[ResponseEvent]:
        """Return the stream events for the agent's text and tools."""
        match event:
            case events.TextDelta(text):
                yield from self._add(text)
            case events.ReasoningDelta(text):
                yield from self._think(text)
            case events.MessageCompleted(text):
                yield from self._complete(text)
            case events.ToolStarted(call_id, name, arguments):
                yield from self._close()
                yield from self._items.tool_called(call_id, name, arguments)
            case events.ToolCompleted(call_id, _, output, failed, _, files):
                self._files += files
                yield from self._items.tool_answered(call_id, output, failed=failed)
            case _:
                return

    def _begin(self, status: str) -> Iterable[ResponseEvent]:
        queued = status == "queued"
        self.response = structs.replace(self.response, status="queued" if queued else "in_progress")
        if not self._is_created:
            yield stream_events.Created(response=self.response)
        self._is_created = True
        yield (
            stream_events.Queued(response=self.response) if queued else stream_events.InProgress(response=self.response)
        )

    def _add(self, text: str) -> Iterable[ResponseEvent]:
        if not isinstance(self._open, MessageBuilder):
            yield from self._close()
            self._open = self._items.words()
            yield from self._open.begun()
        yield from self._open.add(text)

    def _think(self, text: str) -> Iterable[ResponseEvent]:
        if not self._thoughts:
            return
        if not isinstance(self._open, ReasoningBuilder):
            yield from self._close()
            self._open = self._items.thoughts()
            yield from self._open.begun()
        yield from self._open.add(text)

    def _complete(self, text: str) -> Iterable[ResponseEvent]:
        if not isinstance(self._open, MessageBuilder):
            yield from self._add(text)
        if isinstance(self._open, MessageBuilder):
            self._open.text = text
        yield from self._close()

    def _close(self) -> Iterable[ResponseEvent]:
        finished, self._open = self._open, None
        if isinstance(finished, MessageBuilder):
            finished.files, self._files = self._files, ()
        if finished is not None:
            yield from self._items.close(finished)

    def _restart_open(self) -> None:
        """Restart the open text without repeating what stays the same."""
        if self._open is not None:
            self._open.restart()

    def _end(self, event: events.RunEnd, at: float) -> Iterable[ResponseEvent]:
        match event:
            case events.RunCompleted(text):
                if text and not self._items.says(text):
                    yield from self._complete(text)
                yield from self._close()
                if self._files:
                    yield from self._complete(", ".join(file.filename for file in self._files))
                self._items.mark_final()
                self.response = structs.replace(self.whole(), status="completed", completed_at=at)
                yield stream_events.Completed(response=self.response)
            case events.RunFailed(error, "out_of_budget"):
                yield from self._complete(error)
                why = IncompleteDetails("max_output_tokens")
                self.response = structs.replace(self.whole(), status="incomplete", incomplete_details=why)
                yield stream_events.Incomplete(response=self.response)
            case events.RunFailed(error):
                yield from self._close()
                failure = ResponseError("server_error", error)
                self.response = structs.replace(self.whole(), status="failed", error=failure)
                yield stream_events.Failed(response=self.response)
            case events.RunStopped():
                yield from self._close()
                self.response = structs.replace(self.whole(), status="cancelled")
                yield stream_events.Incomplete(response=self.response)
            case _:
                assert_never(event)


def _add_usage(before: ResponseUsage | None, usage: Usage) -> ResponseUsage:
    details = before.input_tokens_details if before else InputTokensDetails()
    thought = before.output_tokens_details.reasoning_tokens if before else 0
    read = (before.input_tokens if before else 0) + usage.input_tokens
    written = (before.output_tokens if before else 0) + usage.output_tokens
    return ResponseUsage(
        input_tokens=read,
        input_tokens_details=InputTokensDetails(
            details.cached_tokens + usage.cache_read_tokens, details.cache_write_tokens + usage.cache_write_tokens
        ),
        output_tokens=written,
        output_tokens_details=OutputTokensDetails(thought + usage.reasoning_tokens),
        total_tokens=read + written,
    )
