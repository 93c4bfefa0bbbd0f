"""Wire types of responses, and the events of their streams, in the Responses protocol."""

from typing import Any, Literal

from msgspec import Raw, Struct

from talaria.api.input_items import Input, Metadata

ResponseStatus = Literal["queued", "in_progress", "completed", "failed", "cancelled", "incomplete"]
ItemStatus = Literal["in_progress", "completed", "incomplete", "failed"]


class FilePath(Struct, frozen=True, tag="file_path"):
    """A file that comes with a text, at its end; `GET /v1/files/{file_id}/content` downloads it."""

    file_id: str
    index: int
    filename: str


class OutputText(Struct, frozen=True, tag="output_text"):
    """Text by the agent."""

    text: str
    annotations: tuple[FilePath, ...] = ()
    logprobs: tuple[str, ...] = ()


class OutputMessage(Struct, frozen=True, tag="message"):
    """A message by the agent."""

    id: str
    status: ItemStatus
    content: tuple[OutputText, ...]
    role: Literal["assistant"] = "assistant"
    phase: Literal["commentary", "final_answer"] | None = None


class FailureText(Struct, frozen=True, tag="text"):
    """Text of a failed tool call."""

    text: str


class ToolFailure(Struct, frozen=True, tag="mcp_tool_execution_error"):
    """The error of a failed tool call."""

    content: tuple[FailureText, ...]


class ToolUse(Struct, frozen=True, tag="mcp_call"):
    """A call of one of the agent's own tools, in the form of a tool that the server runs itself."""

    id: str
    name: str
    arguments: str
    status: ItemStatus
    server_label: str = "talaria"
    output: str | None = None
    error: ToolFailure | None = None
    approval_request_id: str | None = None


class SummaryText(Struct, frozen=True, tag="summary_text"):
    """A piece of the model's reasoning."""

    text: str


class ReasoningItem(Struct, frozen=True, tag="reasoning"):
    """The model's reasoning, if the client asked for it."""

    id: str
    summary: tuple[SummaryText, ...]
    status: ItemStatus = "completed"


OutputItem = OutputMessage | ToolUse | ReasoningItem


class InputTokensDetails(Struct, frozen=True):
    """Cached input tokens."""

    cached_tokens: int = 0
    cache_write_tokens: int = 0


class OutputTokensDetails(Struct, frozen=True):
    """Reasoning tokens."""

    reasoning_tokens: int = 0


class ResponseUsage(Struct, frozen=True):
    """The usage of a response, all model calls together."""

    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class ResponseError(Struct, frozen=True):
    """The error of a failed response."""

    code: str
    message: str


class IncompleteDetails(Struct, frozen=True):
    """The reason why a response is incomplete."""

    reason: str


class ConversationReference(Struct, frozen=True):
    """A conversation by id."""

    id: str


class ReasoningOptions(Struct, frozen=True):
    """Reasoning options."""

    effort: str | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None


class TextFormat(Struct, frozen=True):
    """The format of the answer."""

    type: str = "text"


class TextOptions(Struct, frozen=True):
    """Text options."""

    format: TextFormat | None = None
    verbosity: str | None = None


class ResponseRequest(Struct, frozen=True):
    """A request for a response; fields not listed here are ignored."""

    input: Input | None = None
    model: str | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation: str | ConversationReference | None = None
    store: bool | None = True
    stream: bool | None = False
    background: bool | None = False
    metadata: Metadata | None = None
    reasoning: ReasoningOptions | None = None
    text: TextOptions | None = None
    tools: list[Raw] | None = None
    prompt: Any = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    truncation: str | None = None
    user: str | None = None


class Response(Struct, frozen=True, kw_only=True):
    """A response, finished or in progress."""

    id: str
    created_at: float
    model: str
    status: ResponseStatus
    output: tuple[OutputItem, ...] = ()
    object: Literal["response"] = "response"
    background: bool = False
    completed_at: float | None = None
    conversation: ConversationReference | None = None
    error: ResponseError | None = None
    incomplete_details: IncompleteDetails | None = None
    instructions: str | None = None
    max_output_tokens: int | None = None
    metadata: Metadata = {}
    parallel_tool_calls: bool = True
    previous_response_id: str | None = None
    reasoning: ReasoningOptions = ReasoningOptions()
    store: bool = True
    temperature: float | None = None
    text: TextOptions = TextOptions(TextFormat())
    tool_choice: str = "auto"
    tools: tuple[str, ...] = ()
    top_p: float | None = None
    truncation: str = "disabled"
    usage: ResponseUsage | None = None
    user: str | None = None


class DeletedResponse(Struct, frozen=True):
    """A deleted response."""

    id: str
    object: Literal["response"] = "response"
    deleted: bool = True


class InputItems(Struct, frozen=True):
    """A page of a response's input items."""

    data: list[Raw]
    first_id: str | None
    last_id: str | None
    has_more: bool
    object: Literal["list"] = "list"


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
