"""Stream events of a response, in the Responses protocol."""

from msgspec import Struct

from talaria.api.responses.wire import FilePath, OutputItem, OutputText, Response, SummaryText


class _NumberedEvent(Struct, kw_only=True):
    sequence_number: int = 0


class Created(_NumberedEvent, tag="response.created"):
    """The response was created."""

    response: Response


class Queued(_NumberedEvent, tag="response.queued"):
    """The response is queued."""

    response: Response


class InProgress(_NumberedEvent, tag="response.in_progress"):
    """The response is in progress."""

    response: Response


class Completed(_NumberedEvent, tag="response.completed"):
    """The response is complete."""

    response: Response


class Failed(_NumberedEvent, tag="response.failed"):
    """The response failed."""

    response: Response


class Incomplete(_NumberedEvent, tag="response.incomplete"):
    """The response ended early: at a limit, or because it was stopped."""

    response: Response


class ItemAdded(_NumberedEvent, tag="response.output_item.added"):
    """A new item."""

    output_index: int
    item: OutputItem


class ItemDone(_NumberedEvent, tag="response.output_item.done"):
    """An item is complete."""

    output_index: int
    item: OutputItem


class _ItemEvent(_NumberedEvent, kw_only=True):
    item_id: str
    output_index: int


class PartAdded(_ItemEvent, tag="response.content_part.added"):
    """A new text part."""

    content_index: int
    part: OutputText


class PartDone(_ItemEvent, tag="response.content_part.done"):
    """A text part is complete."""

    content_index: int
    part: OutputText


class TextDeltaAdded(_ItemEvent, tag="response.output_text.delta"):
    """More text."""

    content_index: int
    delta: str
    logprobs: tuple[str, ...] = ()


class AnnotationAdded(_ItemEvent, tag="response.output_text.annotation.added"):
    """A file that comes with a text."""

    content_index: int
    annotation_index: int
    annotation: FilePath


class TextDone(_ItemEvent, tag="response.output_text.done"):
    """The complete text."""

    content_index: int
    text: str
    logprobs: tuple[str, ...] = ()


class ToolInProgress(_ItemEvent, tag="response.mcp_call.in_progress"):
    """A tool call started."""


class ArgumentsAdded(_ItemEvent, tag="response.mcp_call_arguments.delta"):
    """Arguments of a tool call, or more of them."""

    delta: str


class ArgumentsDone(_ItemEvent, tag="response.mcp_call_arguments.done"):
    """The complete arguments of a tool call."""

    arguments: str


class ToolCallCompleted(_ItemEvent, tag="response.mcp_call.completed"):
    """A tool call succeeded."""


class ToolCallFailed(_ItemEvent, tag="response.mcp_call.failed"):
    """A tool call failed."""


class SummaryPartAdded(_ItemEvent, tag="response.reasoning_summary_part.added"):
    """A new reasoning part."""

    summary_index: int
    part: SummaryText


class SummaryPartDone(_ItemEvent, tag="response.reasoning_summary_part.done"):
    """A reasoning part is complete."""

    summary_index: int
    part: SummaryText


class SummaryAdded(_ItemEvent, tag="response.reasoning_summary_text.delta"):
    """More reasoning."""

    summary_index: int
    delta: str


class SummaryDone(_ItemEvent, tag="response.reasoning_summary_text.done"):
    """The complete reasoning."""

    summary_index: int
    text: str


class StreamError(_NumberedEvent, tag="error"):
    """The stream failed."""

    message: str
    code: str | None = None
    param: str | None = None


ResponseEnd = Completed | Failed | Incomplete
ResponseEvent = (
    Created
    | Queued
    | InProgress
    | ResponseEnd
    | ItemAdded
    | ItemDone
    | PartAdded
    | PartDone
    | TextDeltaAdded
    | AnnotationAdded
    | TextDone
    | ToolInProgress
    | ArgumentsAdded
    | ArgumentsDone
    | ToolCallCompleted
    | ToolCallFailed
    | SummaryPartAdded
    | SummaryPartDone
    | SummaryAdded
    | SummaryDone
    | StreamError
)


def get_event_name(event: ResponseEvent) -> str:
    """Return the name of an event on the wire."""
    return str(event.__struct_config__.tag)
