"""Responses as clients send and receive them."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Raw, Struct

Status = Literal["queued", "in_progress", "completed", "failed", "cancelled", "incomplete"]
ItemStatus = Literal["in_progress", "completed", "incomplete", "failed"]
Metadata = dict[str, str]
_PART = {
    "type": "object",
    "required": ["type"],
    "properties": {
        "type": {"enum": ["input_text", "input_image", "output_text", "refusal"]},
        "text": {"type": "string"},
        "image_url": {"type": "string"},
        "refusal": {"type": "string"},
    },
}
_ITEM = {
    "title": "InputItem",
    "type": "object",
    "properties": {
        "type": {
            "enum": ["message", "item_reference", "mcp_call", "function_call", "function_call_output", "reasoning"],
        },
        "role": {"enum": ["user", "assistant", "system", "developer"]},
        "content": {"anyOf": [{"type": "string"}, {"type": "array", "items": _PART}]},
    },
}
InputItem = Annotated[Raw, Meta(description="Something that was said or done.", extra_json_schema=_ITEM)]
Input = Annotated[str | list[InputItem], Meta(description="What is said: words, or items; the last is a user's.")]


class OutputText(Struct, frozen=True, tag="output_text"):
    """Words of the agent."""

    text: str
    annotations: tuple[str, ...] = ()
    logprobs: tuple[str, ...] = ()


class OutputMessage(Struct, frozen=True, tag="message"):
    """Something the agent said."""

    id: str
    status: ItemStatus
    content: tuple[OutputText, ...]
    role: Literal["assistant"] = "assistant"
    phase: Literal["commentary", "final_answer"] | None = None


class FailureText(Struct, frozen=True, tag="text"):
    """Words of a tool that failed."""

    text: str


class ToolFailure(Struct, frozen=True, tag="mcp_tool_execution_error"):
    """Why a tool could not do it."""

    content: tuple[FailureText, ...]


class ToolUse(Struct, frozen=True, tag="mcp_call"):
    """A tool of the agent at work: clients take it for one that the server runs itself, as it is."""

    id: str
    name: str
    arguments: str
    status: ItemStatus
    server_label: str = "talaria"
    output: str | None = None
    error: ToolFailure | None = None
    approval_request_id: str | None = None


class SummaryText(Struct, frozen=True, tag="summary_text"):
    """A piece of what the model thought."""

    text: str


class ReasoningItem(Struct, frozen=True, tag="reasoning"):
    """What the model thought aloud, where the client asked for it."""

    id: str
    summary: tuple[SummaryText, ...]
    status: ItemStatus = "completed"


OutputItem = OutputMessage | ToolUse | ReasoningItem


class InputTokensDetails(Struct, frozen=True):
    """How many of the tokens came from a cache, and how many went to one."""

    cached_tokens: int = 0
    cache_write_tokens: int = 0


class OutputTokensDetails(Struct, frozen=True):
    """How many of the tokens were thoughts."""

    reasoning_tokens: int = 0


class ResponseUsage(Struct, frozen=True):
    """What the model calls behind a response took, all of them together."""

    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class ResponseError(Struct, frozen=True):
    """Why a response failed."""

    code: str
    message: str


class IncompleteDetails(Struct, frozen=True):
    """Why a response is not whole."""

    reason: str


class ConversationReference(Struct, frozen=True):
    """A conversation by its id."""

    id: str


class ReasoningWish(Struct, frozen=True):
    """How the model is to think, and whether its thoughts are told."""

    effort: str | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None


class TextFormat(Struct, frozen=True):
    """The form of what the agent says."""

    type: str = "text"


class TextWish(Struct, frozen=True):
    """How the agent is to write."""

    format: TextFormat | None = None
    verbosity: str | None = None


class ResponseRequest(Struct, frozen=True):
    """What a client asks for; what is not named here is not heeded."""

    input: Input | None = None
    model: str | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation: str | ConversationReference | None = None
    store: bool | None = True
    stream: bool | None = False
    background: bool | None = False
    metadata: Metadata | None = None
    reasoning: ReasoningWish | None = None
    text: TextWish | None = None
    tools: list[Raw] | None = None
    prompt: Any = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    truncation: str | None = None
    user: str | None = None


class Response(Struct, frozen=True, kw_only=True):
    """An answer of the agent, or one in the making."""

    id: str
    created_at: float
    model: str
    status: Status
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
    reasoning: ReasoningWish = ReasoningWish()
    store: bool = True
    temperature: float | None = None
    text: TextWish = TextWish(TextFormat())
    tool_choice: str = "auto"
    tools: tuple[str, ...] = ()
    top_p: float | None = None
    truncation: str = "disabled"
    usage: ResponseUsage | None = None
    user: str | None = None


class DeletedResponse(Struct, frozen=True):
    """That a response is forgotten."""

    id: str
    object: Literal["response"] = "response"
    deleted: bool = True


class InputItems(Struct, frozen=True):
    """What was said in a response, page by page."""

    data: list[Raw]
    first_id: str | None
    last_id: str | None
    has_more: bool
    object: Literal["list"] = "list"
