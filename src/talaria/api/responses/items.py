"""The items of a response: what the agent says, thinks and does, each with the events that tell of it."""

from collections.abc import Iterable

from msgspec import structs

from talaria.api.responses import stream_events as told
from talaria.api.responses.stream_events import ResponseEvent
from talaria.api.responses.wire import (
    FailureText,
    OutputItem,
    OutputMessage,
    OutputText,
    ReasoningItem,
    SummaryText,
    ToolFailure,
    ToolUse,
)


class _Growing:
    """Something that is told piece by piece; ``text`` is all of it so far."""

    def __init__(self, item_id: str, index: int) -> None:
        self.id = item_id
        self.index = index
        self.text = ""
        self._told = ""

    def anew(self) -> None:
        """Begin with its text again; of that, nothing is told twice."""
        self.text = ""

    def fresh(self, text: str) -> str:
        """Take more text, and return what of it can be told: nothing as long as it was told before, or contradicts."""
        self.text += text
        if not self.text.startswith(self._told):
            return ""
        new = self.text[len(self._told) :]
        self._told = self.text
        return new


class Words(_Growing):
    """A message that grows."""

    def begun(self) -> Iterable[ResponseEvent]:
        """Tell that it is there."""
        item = OutputMessage(self.id, "in_progress", ())
        yield told.ItemAdded(output_index=self.index, item=item)
        yield told.PartAdded(item_id=self.id, output_index=self.index, content_index=0, part=OutputText(""))

    def add(self, text: str) -> Iterable[ResponseEvent]:
        """Tell of more words."""
        if new := self.fresh(text):
            yield told.TextAdded(item_id=self.id, output_index=self.index, content_index=0, delta=new)

    def done(self) -> tuple[OutputItem, list[ResponseEvent]]:
        """Return the whole message, and tell that it is."""
        part = OutputText(self.text)
        over: list[ResponseEvent] = [
            told.TextDone(item_id=self.id, output_index=self.index, content_index=0, text=self.text),
            told.PartDone(item_id=self.id, output_index=self.index, content_index=0, part=part),
        ]
        return OutputMessage(self.id, "completed", (part,), phase="commentary"), over


class Thoughts(_Growing):
    """Thoughts that grow."""

    def begun(self) -> Iterable[ResponseEvent]:
        """Tell that they are there."""
        yield told.ItemAdded(output_index=self.index, item=ReasoningItem(self.id, (), "in_progress"))
        yield told.SummaryPartAdded(item_id=self.id, output_index=self.index, summary_index=0, part=SummaryText(""))

    def add(self, text: str) -> Iterable[ResponseEvent]:
        """Tell of more of them."""
        if new := self.fresh(text):
            yield told.SummaryAdded(item_id=self.id, output_index=self.index, summary_index=0, delta=new)

    def done(self) -> tuple[OutputItem, list[ResponseEvent]]:
        """Return all of them, and tell that they are over."""
        part = SummaryText(self.text)
        over: list[ResponseEvent] = [
            told.SummaryDone(item_id=self.id, output_index=self.index, summary_index=0, text=self.text),
            told.SummaryPartDone(item_id=self.id, output_index=self.index, summary_index=0, part=part),
        ]
        return ReasoningItem(self.id, (part,)), over


class Items:
    """The items of one response, in the order in which they began; their ids follow from their places."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._done: dict[int, OutputItem] = {}
        self._count = 0
        self._calls: dict[str, tuple[int, ToolUse]] = {}

    @property
    def done(self) -> tuple[OutputItem, ...]:
        """Those that are whole; a tool that nobody has heard of again is not."""
        cut = {index: structs.replace(use, status="incomplete") for index, use in self._calls.values()}
        return tuple(item for _, item in sorted((self._done | cut).items()))

    def says(self, text: str) -> bool:
        """Tell whether this is what was said last."""
        said = [item for _, item in sorted(self._done.items()) if isinstance(item, OutputMessage)]
        return bool(said) and "".join(part.text for part in said[-1].content) == text

    def make_final(self) -> None:
        """Make what was said last the answer."""
        last = max((index for index, item in self._done.items() if isinstance(item, OutputMessage)), default=None)
        if last is not None:
            self._done[last] = structs.replace(self._done[last], phase="final_answer")

    def words(self) -> Words:
        """Begin a message."""
        return Words(*self._next("msg"))

    def thoughts(self) -> Thoughts:
        """Begin thoughts."""
        return Thoughts(*self._next("rs"))

    def close(self, growing: Words | Thoughts) -> Iterable[ResponseEvent]:
        """Keep something that is whole, and tell of it."""
        item, over = growing.done()
        self._done[growing.index] = item
        yield from over
        yield told.ItemDone(output_index=growing.index, item=item)

    def tool_called(self, call_id: str, name: str, arguments: str) -> Iterable[ResponseEvent]:
        """Tell that a tool begins."""
        item_id, index = self._next("mcp")
        use = ToolUse(item_id, name, arguments, "in_progress")
        self._calls[call_id] = index, use
        yield told.ItemAdded(output_index=index, item=structs.replace(use, arguments=""))
        yield told.ToolInProgress(item_id=item_id, output_index=index)
        yield told.ArgumentsAdded(item_id=item_id, output_index=index, delta=arguments)
        yield told.ArgumentsDone(item_id=item_id, output_index=index, arguments=arguments)

    def tool_answered(self, call_id: str, output: str, *, failed: bool) -> Iterable[ResponseEvent]:
        """Tell that a tool is done."""
        index, use = self._calls.pop(call_id, (None, None))
        if index is None or use is None:
            return
        if failed:
            use = structs.replace(use, status="failed", error=ToolFailure((FailureText(output),)))
            yield told.ToolFailed(item_id=use.id, output_index=index)
        else:
            use = structs.replace(use, status="completed", output=output)
            yield told.ToolCompleted(item_id=use.id, output_index=index)
        self._done[index] = use
        yield told.ItemDone(output_index=index, item=use)

    def _next(self, kind: str) -> tuple[str, int]:
        index, self._count = self._count, self._count + 1
        return f"{kind}_{self._name}_{index}", index
