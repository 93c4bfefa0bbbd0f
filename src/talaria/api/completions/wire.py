"""Chat completions as they go over the wire."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

Role = Literal["system", "developer", "user", "assistant", "tool", "function"]


class TextPart(Struct, frozen=True, tag_field="type", tag="text"):
    """Words."""

    text: str


class ImageAddress(Struct, frozen=True):
    """Where a picture is: an address of the web, or the picture itself as a ``data:`` address."""

    url: str
    detail: str | None = None


class ImagePart(Struct, frozen=True, tag_field="type", tag="image_url"):
    """A picture."""

    image_url: ImageAddress


class RefusalPart(Struct, frozen=True, tag_field="type", tag="refusal"):
    """What a model said in place of an answer."""

    refusal: str


class FunctionCall(Struct, frozen=True):
    """What a model once asked to be called."""

    name: str
    arguments: str = ""


class CalledTool(Struct, frozen=True):
    """A call in a history."""

    id: str
    function: FunctionCall
    type: str = "function"


Content = str | list[TextPart | ImagePart | RefusalPart] | None


class WireMessage(Struct, frozen=True, kw_only=True):
    """One message of a history."""

    role: Role
    content: Content = None
    name: str | None = None
    tool_calls: list[CalledTool] | None = None
    tool_call_id: str | None = None


class StreamOptions(Struct, frozen=True):
    """What a stream has besides."""

    include_usage: bool | None = None


class ResponseFormat(Struct, frozen=True):
    """In which form a model should answer."""

    type: str = "text"


class CreateCompletion(Struct, frozen=True, kw_only=True):
    """A request; what is not listed here, such as ``temperature``, is left to the settings of the agent."""

    messages: Annotated[list[WireMessage], Meta(min_length=1)]
    model: str = "talaria"
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    tools: list[Any] | None = None
    functions: list[Any] | None = None
    response_format: ResponseFormat | None = None
    stop: str | list[str] | None = None
    logprobs: bool | None = None
    modalities: list[str] | None = None
    audio: Any = None


class PromptDetails(Struct, frozen=True):
    """What of the input came out of a cache."""

    cached_tokens: int = 0


class CompletionDetails(Struct, frozen=True):
    """What of the output was thought."""

    reasoning_tokens: int = 0


class CompletionUsage(Struct, frozen=True, kw_only=True):
    """What the turn used, all of its model calls together."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0
    prompt_tokens_details: PromptDetails = PromptDetails()
    completion_tokens_details: CompletionDetails = CompletionDetails()


FinishReason = Literal["stop", "length"]


class AnswerMessage(Struct, frozen=True):
    """What the agent says."""

    content: str
    role: Literal["assistant"] = "assistant"
    refusal: str | None = None


class Choice(Struct, frozen=True):
    """The one answer there is."""

    message: AnswerMessage
    finish_reason: FinishReason
    index: int = 0
    logprobs: None = None


class Completion(Struct, frozen=True, kw_only=True):
    """A whole answer."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: tuple[Choice, ...]
    usage: CompletionUsage


class Delta(Struct, frozen=True, omit_defaults=True):
    """What is new."""

    role: str | UnsetType = UNSET
    content: str | UnsetType = UNSET


class ChunkChoice(Struct, frozen=True):
    """What is new in the one answer there is."""

    delta: Delta
    finish_reason: FinishReason | None = None
    index: int = 0
    logprobs: None = None


class ToolNews(Struct, frozen=True, omit_defaults=True):
    """What a tool of the agent does: a field that OpenAI's chunks do not have, which their clients ignore."""

    type: Literal["tool.called", "tool.answered"]
    call_id: str
    name: str
    summary: str = ""
    failed: bool = False
    seconds: float = 0.0


class Chunk(Struct, frozen=True, kw_only=True):
    """A piece of an answer that is streamed."""

    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    choices: tuple[ChunkChoice, ...]
    usage: CompletionUsage | UnsetType | None = UNSET
    talaria: ToolNews | UnsetType = UNSET
