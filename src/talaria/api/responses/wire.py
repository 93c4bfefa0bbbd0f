"""Wire types of responses."""

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
