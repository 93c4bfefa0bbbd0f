"""Build a response from turn events: its items and its stream events."""

from collections.abc import Iterable
from typing import assert_never

from msgspec import structs

from talaria.api.files import ApiFile
from talaria.api.responses import wire
from talaria.api.responses.wire import (
    FailureText,
    FilePath,
    IncompleteDetails,
    InputTokensDetails,
    OutputItem,
    OutputMessage,
    OutputText,
    OutputTokensDetails,
    ReasoningItem,
    Response,
    ResponseError,
    ResponseEvent,
    ResponseUsage,
    SummaryText,
    ToolFailure,
    ToolUse,
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

    def build_response(self) -> Response:
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
                yield from self._add_thought(text)
            case events.MessageCompleted(text):
                yield from self._complete(text)
            case events.ToolStarted(call_id, name, arguments):
                yield from self._close()
                yield from self._items.start_tool_call(call_id, name, arguments)
            case events.ToolCompleted(call_id, _, output, failed, _, files):
                self._files += files
                yield from self._items.end_tool_call(call_id, output, failed=failed)
            case _:
                return

    def _begin(self, status: str) -> Iterable[ResponseEvent]:
        queued = status == "queued"
        self.response = structs.replace(self.response, status="queued" if queued else "in_progress")
        if not self._is_created:
            yield wire.Created(response=self.response)
        self._is_created = True
        yield (wire.Queued(response=self.response) if queued else wire.InProgress(response=self.response))

    def _add(self, text: str) -> Iterable[ResponseEvent]:
        if not isinstance(self._open, MessageBuilder):
            yield from self._close()
            self._open = self._items.start_message()
            yield from self._open.begin()
        yield from self._open.add(text)

    def _add_thought(self, text: str) -> Iterable[ResponseEvent]:
        if not self._thoughts:
            return
        if not isinstance(self._open, ReasoningBuilder):
            yield from self._close()
            self._open = self._items.start_reasoning()
            yield from self._open.begin()
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
                if text and not self._items.is_last_message(text):
                    yield from self._complete(text)
                yield from self._close()
                if self._files:
                    yield from self._complete(", ".join(file.filename for file in self._files))
                self._items.mark_final()
                self.response = structs.replace(self.build_response(), status="completed", completed_at=at)
                yield wire.Completed(response=self.response)
            case events.RunFailed(error, "out_of_budget"):
                yield from self._complete(error)
                why = IncompleteDetails("max_output_tokens")
                self.response = structs.replace(self.build_response(), status="incomplete", incomplete_details=why)
                yield wire.Incomplete(response=self.response)
            case events.RunFailed(error):
                yield from self._close()
                failure = ResponseError("server_error", error)
                self.response = structs.replace(self.build_response(), status="failed", error=failure)
                yield wire.Failed(response=self.response)
            case events.RunStopped():
                yield from self._close()
                self.response = structs.replace(self.build_response(), status="cancelled")
                yield wire.Incomplete(response=self.response)
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


class _ItemBuilder:
    """An item that grows; ``text`` is all of it so far."""

    def __init__(self, item_id: str, index: int) -> None:
        self.id = item_id
        self.index = index
        self.text = ""
        self._sent = ""

    def restart(self) -> None:
        """Restart its text; nothing is emitted twice."""
        self.text = ""

    def take_new_text(self, text: str) -> str:
        """Add text and return the part to emit: none while it repeats or contradicts what was emitted."""
        self.text += text
        if not self.text.startswith(self._sent):
            return ""
        new = self.text[len(self._sent) :]
        self._sent = self.text
        return new


class MessageBuilder(_ItemBuilder):
    """A growing message; ``files`` come with it."""

    def __init__(self, item_id: str, index: int) -> None:
        super().__init__(item_id, index)
        self.files: tuple[ApiFile, ...] = ()

    def begin(self) -> Iterable[ResponseEvent]:
        """Return the events of its start."""
        item = OutputMessage(self.id, "in_progress", ())
        yield wire.ItemAdded(output_index=self.index, item=item)
        yield wire.PartAdded(item_id=self.id, output_index=self.index, content_index=0, part=OutputText(""))

    def add(self, text: str) -> Iterable[ResponseEvent]:
        """Return the events for more text."""
        if new := self.take_new_text(text):
            yield wire.TextDeltaAdded(item_id=self.id, output_index=self.index, content_index=0, delta=new)

    def finish(self) -> tuple[OutputItem, list[ResponseEvent]]:
        """Return the complete message and its final events."""
        annotations = tuple(FilePath(file.id, len(self.text), file.filename) for file in self.files)
        part = OutputText(self.text, annotations)
        end_events: list[ResponseEvent] = [
            *(
                wire.AnnotationAdded(
                    item_id=self.id, output_index=self.index, content_index=0, annotation_index=number, annotation=file
                )
                for number, file in enumerate(annotations)
            ),
            wire.TextDone(item_id=self.id, output_index=self.index, content_index=0, text=self.text),
            wire.PartDone(item_id=self.id, output_index=self.index, content_index=0, part=part),
        ]
        return OutputMessage(self.id, "completed", (part,), phase="commentary"), end_events


class ReasoningBuilder(_ItemBuilder):
    """Growing reasoning."""

    def begin(self) -> Iterable[ResponseEvent]:
        """Return the events of its start."""
        yield wire.ItemAdded(output_index=self.index, item=ReasoningItem(self.id, (), "in_progress"))
        yield wire.SummaryPartAdded(item_id=self.id, output_index=self.index, summary_index=0, part=SummaryText(""))

    def add(self, text: str) -> Iterable[ResponseEvent]:
        """Return the events for more of it."""
        if new := self.take_new_text(text):
            yield wire.SummaryAdded(item_id=self.id, output_index=self.index, summary_index=0, delta=new)

    def finish(self) -> tuple[OutputItem, list[ResponseEvent]]:
        """Return the complete reasoning and its final events."""
        part = SummaryText(self.text)
        end_events: list[ResponseEvent] = [
            wire.SummaryDone(item_id=self.id, output_index=self.index, summary_index=0, text=self.text),
            wire.SummaryPartDone(item_id=self.id, output_index=self.index, summary_index=0, part=part),
        ]
        return ReasoningItem(self.id, (part,)), end_events


class OutputItems:
    """The items of one response, in order of their start; their ids follow from their positions."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._done: dict[int, OutputItem] = {}
        self._count = 0
        self._calls: dict[str, tuple[int, ToolUse]] = {}

    @property
    def done(self) -> tuple[OutputItem, ...]:
        """Return the complete items; an unanswered tool call is not complete."""
        interrupted = {index: structs.replace(use, status="incomplete") for index, use in self._calls.values()}
        return tuple(item for _, item in sorted((self._done | interrupted).items()))

    def is_last_message(self, text: str) -> bool:
        """Return whether this is the last message."""
        output_messages = [item for _, item in sorted(self._done.items()) if isinstance(item, OutputMessage)]
        return bool(output_messages) and "".join(part.text for part in output_messages[-1].content) == text

    def mark_final(self) -> None:
        """Mark the last message as the answer."""
        last = max((index for index, item in self._done.items() if isinstance(item, OutputMessage)), default=None)
        if last is not None:
            self._done[last] = structs.replace(self._done[last], phase="final_answer")

    def start_message(self) -> MessageBuilder:
        """Start a message."""
        return MessageBuilder(*self._take_next_id("msg"))

    def start_reasoning(self) -> ReasoningBuilder:
        """Start reasoning."""
        return ReasoningBuilder(*self._take_next_id("rs"))

    def close(self, builder: MessageBuilder | ReasoningBuilder) -> Iterable[ResponseEvent]:
        """Add a complete item and return its events."""
        item, end_events = builder.finish()
        self._done[builder.index] = item
        yield from end_events
        yield wire.ItemDone(output_index=builder.index, item=item)

    def start_tool_call(self, call_id: str, name: str, arguments: str) -> Iterable[ResponseEvent]:
        """Return the events of a tool's start."""
        item_id, index = self._take_next_id("mcp")
        use = ToolUse(item_id, name, arguments, "in_progress")
        self._calls[call_id] = index, use
        yield wire.ItemAdded(output_index=index, item=structs.replace(use, arguments=""))
        yield wire.ToolInProgress(item_id=item_id, output_index=index)
        yield wire.ArgumentsAdded(item_id=item_id, output_index=index, delta=arguments)
        yield wire.ArgumentsDone(item_id=item_id, output_index=index, arguments=arguments)

    def end_tool_call(self, call_id: str, output: str, *, failed: bool) -> Iterable[ResponseEvent]:
        """Return the events of a tool's end."""
        index, use = self._calls.pop(call_id, (None, None))
        if index is None or use is None:
            return
        if failed:
            use = structs.replace(use, status="failed", error=ToolFailure((FailureText(output),)))
            yield wire.ToolCallFailed(item_id=use.id, output_index=index)
        else:
            use = structs.replace(use, status="completed", output=output)
            yield wire.ToolCallCompleted(item_id=use.id, output_index=index)
        self._done[index] = use
        yield wire.ItemDone(output_index=index, item=use)

    def _take_next_id(self, kind: str) -> tuple[str, int]:
        index, self._count = self._count, self._count + 1
        return f"{kind}_{self._name}_{index}", index
