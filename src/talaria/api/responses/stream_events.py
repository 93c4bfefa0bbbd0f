"""The events of a response that is told while it grows, in the words of the Responses protocol."""

from msgspec import Struct

from talaria.api.responses.wire import OutputItem, OutputText, Response, SummaryText


class _Numbered(Struct, kw_only=True):
    sequence_number: int = 0


class Created(_Numbered, tag="response.created"):
    """The response is there."""

    response: Response


class Queued(_Numbered, tag="response.queued"):
    """It waits for its turn."""

    response: Response


class InProgress(_Numbered, tag="response.in_progress"):
    """It is being worked on."""

    response: Response


class Completed(_Numbered, tag="response.completed"):
    """It is whole."""

    response: Response


class Failed(_Numbered, tag="response.failed"):
    """There will be no answer."""

    response: Response


class Incomplete(_Numbered, tag="response.incomplete"):
    """A limit ended it, or somebody who stopped it."""

    response: Response


class ItemAdded(_Numbered, tag="response.output_item.added"):
    """Another item begins."""

    output_index: int
    item: OutputItem


class ItemDone(_Numbered, tag="response.output_item.done"):
    """An item is whole."""

    output_index: int
    item: OutputItem


class _OfItem(_Numbered, kw_only=True):
    item_id: str
    output_index: int


class PartAdded(_OfItem, tag="response.content_part.added"):
    """Words begin."""

    content_index: int
    part: OutputText


class PartDone(_OfItem, tag="response.content_part.done"):
    """Words are whole."""

    content_index: int
    part: OutputText


class TextAdded(_OfItem, tag="response.output_text.delta"):
    """More words."""

    content_index: int
    delta: str
    logprobs: tuple[str, ...] = ()


class TextDone(_OfItem, tag="response.output_text.done"):
    """All the words."""

    content_index: int
    text: str
    logprobs: tuple[str, ...] = ()


class ToolInProgress(_OfItem, tag="response.mcp_call.in_progress"):
    """A tool begins."""


class ArgumentsAdded(_OfItem, tag="response.mcp_call_arguments.delta"):
    """What a tool is called with, or more of it."""

    delta: str


class ArgumentsDone(_OfItem, tag="response.mcp_call_arguments.done"):
    """All that a tool is called with."""

    arguments: str


class ToolCompleted(_OfItem, tag="response.mcp_call.completed"):
    """A tool is done."""


class ToolFailed(_OfItem, tag="response.mcp_call.failed"):
    """A tool could not do it."""


class SummaryPartAdded(_OfItem, tag="response.reasoning_summary_part.added"):
    """Thoughts begin."""

    summary_index: int
    part: SummaryText


class SummaryPartDone(_OfItem, tag="response.reasoning_summary_part.done"):
    """Thoughts are whole."""

    summary_index: int
    part: SummaryText


class SummaryAdded(_OfItem, tag="response.reasoning_summary_text.delta"):
    """More thoughts."""

    summary_index: int
    delta: str


class SummaryDone(_OfItem, tag="response.reasoning_summary_text.done"):
    """All the thoughts."""

    summary_index: int
    text: str


class Error(_Numbered, tag="error"):
    """The stream cannot go on."""

    message: str
    code: str | None = None
    param: str | None = None


Ended = Completed | Failed | Incomplete
ResponseEvent = (
    Created
    | Queued
    | InProgress
    | Ended
    | ItemAdded
    | ItemDone
    | PartAdded
    | PartDone
    | TextAdded
    | TextDone
    | ToolInProgress
    | ArgumentsAdded
    | ArgumentsDone
    | ToolCompleted
    | ToolFailed
    | SummaryPartAdded
    | SummaryPartDone
    | SummaryAdded
    | SummaryDone
    | Error
)


def name_of(event: ResponseEvent) -> str:
    """Return what an event is called on the wire."""
    return str(event.__struct_config__.tag)
