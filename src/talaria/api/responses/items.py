"""The items of a response, each with its stream events."""

from collections.abc import Iterable

from msgspec import structs

from talaria.api.files import ApiFile
from talaria.api.responses import stream_events
from talaria.api.responses.stream_events import ResponseEvent
from talaria.api.responses.wire import (
    FailureText,
    FilePath,
    OutputItem,
    OutputMessage,
    OutputText,
    ReasoningItem,
    SummaryText,
    ToolFailure,
    ToolUse,
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

    def fresh(self, text: str) -> str:
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

    def begun(self) -> Iterable[ResponseEvent]:
        """Return the events of its start."""
        item = OutputMessage(self.id, "in_progress", ())
        yield stream_events.ItemAdded(output_index=self.index, item=item)
        yield stream_events.PartAdded(item_id=self.id, output_index=self.index, content_index=0, part=OutputText(""))

    def add(self, text: str) -> Iterable[ResponseEvent]:
        """Return the events for more text."""
        if new := self.fresh(text):
            yield stream_events.TextDeltaAdded(item_id=self.id, output_index=self.index, content_index=0, delta=new)

    def done(self) -> tuple[OutputItem, list[ResponseEvent]]:
        """Return the complete message and its final events."""
        annotations = tuple(FilePath(file.id, len(self.text), file.filename) for file in self.files)
        part = OutputText(self.text, annotations)
        end_events: list[ResponseEvent] = [
            *(
                stream_events.AnnotationAdded(
                    item_id=self.id, output_index=self.index, content_index=0, annotation_index=number, annotation=file
                )
                for number, file in enumerate(annotations)
            ),
            stream_events.TextDone(item_id=self.id, output_index=self.index, content_index=0, text=self.text),
            stream_events.PartDone(item_id=self.id, output_index=self.index, content_index=0, part=part),
        ]
        return OutputMessage(self.id, "completed", (part,), phase="commentary"), end_events


class ReasoningBuilder(_ItemBuilder):
    """Growing reasoning."""

    def begun(self) -> Iterable[ResponseEvent]:
        """Return the events of its start."""
        yield stream_events.ItemAdded(output_index=self.index, item=ReasoningItem(self.id, (), "in_progress"))
        yield stream_events.SummaryPartAdded(
            item_id=self.id, output_index=self.index, summary_index=0, part=SummaryText("")
        )

    def add(self, text: str) -> Iterable[ResponseEvent]:
        """Return the events for more of it."""
        if new := self.fresh(text):
            yield stream_events.SummaryAdded(item_id=self.id, output_index=self.index, summary_index=0, delta=new)

    def done(self) -> tuple[OutputItem, list[ResponseEvent]]:
        """Return the complete reasoning and its final events."""
        part = SummaryText(self.text)
        end_events: list[ResponseEvent] = [
            stream_events.SummaryDone(item_id=self.id, output_index=self.index, summary_index=0, text=self.text),
            stream_events.SummaryPartDone(item_id=self.id, output_index=self.index, summary_index=0, part=part),
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

    def says(self, text: str) -> bool:
        """Return whether this is the last message."""
        output_messages = [item for _, item in sorted(self._done.items()) if isinstance(item, OutputMessage)]
        return bool(output_messages) and "".join(part.text for part in output_messages[-1].content) == text

    def mark_final(self) -> None:
        """Mark the last message as the answer."""
        last = max((index for index, item in self._done.items() if isinstance(item, OutputMessage)), default=None)
        if last is not None:
            self._done[last] = structs.replace(self._done[last], phase="final_answer")

    def words(self) -> MessageBuilder:
        """Start a message."""
        return MessageBuilder(*self._next_id("msg"))

    def thoughts(self) -> ReasoningBuilder:
        """Start reasoning."""
        return ReasoningBuilder(*self._next_id("rs"))

    def close(self, builder: MessageBuilder | ReasoningBuilder) -> Iterable[ResponseEvent]:
        """Add a complete item and return its events."""
        item, end_events = builder.done()
        self._done[builder.index] = item
        yield from end_events
        yield stream_events.ItemDone(output_index=builder.index, item=item)

    def tool_called(self, call_id: str, name: str, arguments: str) -> Iterable[ResponseEvent]:
        """Return the events of a tool's start."""
        item_id, index = self._next_id("mcp")
        use = ToolUse(item_id, name, arguments, "in_progress")
        self._calls[call_id] = index, use
        yield stream_events.ItemAdded(output_index=index, item=structs.replace(use, arguments=""))
        yield stream_events.ToolInProgress(item_id=item_id, output_index=index)
        yield stream_events.ArgumentsAdded(item_id=item_id, output_index=index, delta=arguments)
        yield stream_events.ArgumentsDone(item_id=item_id, output_index=index, arguments=arguments)

    def tool_answered(self, call_id: str, output: str, *, failed: bool) -> Iterable[ResponseEvent]:
        """Return the events of a tool's end."""
        index, use = self._calls.pop(call_id, (None, None))
        if index is None or use is None:
            return
        if failed:
            use = structs.replace(use, status="failed", error=ToolFailure((FailureText(output),)))
            yield stream_events.ToolCallFailed(item_id=use.id, output_index=index)
        else:
            use = structs.replace(use, status="completed", output=output)
            yield stream_events.ToolCallCompleted(item_id=use.id, output_index=index)
        self._done[index] = use
        yield stream_events.ItemDone(output_index=index, item=use)

    def _next_id(self, kind: str) -> tuple[str, int]:
        index, self._count = self._count, self._count + 1
        return f"{kind}_{self._name}_{index}", index
