"""Wire types of chat completions."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from talaria.api.files import ApiFile

Role = Literal["system", "developer", "user", "assistant", "tool", "function"]


class TextPart(Struct, frozen=True, tag_field="type", tag="text"):
    """Text."""

    text: str


class ImageAddress(Struct, frozen=True):
    """The URL of an image: on the web, or the image itself as a ``data:`` URL."""

    url: str
    detail: str | None = None


class ImagePart(Struct, frozen=True, tag_field="type", tag="image_url"):
    """An image."""

    image_url: ImageAddress


class FileData(Struct, frozen=True):
    """A file as a ``data:`` URL."""

    file_data: str
    filename: str = "file"


class FilePart(Struct, frozen=True, tag_field="type", tag="file"):
    """A document or any other file."""

    file: FileData


class RefusalPart(Struct, frozen=True, tag_field="type", tag="refusal"):
    """A model's refusal."""

    refusal: str


class FunctionCall(Struct, frozen=True):
    """A function call by a model."""

    name: str
    arguments: str = ""


class CalledTool(Struct, frozen=True):
    """A tool call in a history."""

    id: str
    function: FunctionCall
    type: str = "function"


Content = str | list[TextPart | ImagePart | FilePart | RefusalPart] | None


class WireMessage(Struct, frozen=True, kw_only=True):
    """A message of a history."""

    role: Role
    content: Content = None
    name: str | None = None
    tool_calls: list[CalledTool] | None = None
    tool_call_id: str | None = None


class StreamOptions(Struct, frozen=True):
    """Options of a stream."""

    include_usage: bool | None = None


class ResponseFormat(Struct, frozen=True):
    """The requested format of the answer."""

    type: str = "text"


class CreateCompletion(Struct, frozen=True, kw_only=True):
    """A request; fields not listed here, for example ``temperature``, are ignored: the agent's settings apply."""

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
    """Cached part of the input."""

    cached_tokens: int = 0


class CompletionDetails(Struct, frozen=True):
    """Reasoning part of the output."""

    reasoning_tokens: int = 0


class CompletionUsage(Struct, frozen=True, kw_only=True):
    """The usage of the turn, all model calls together."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0
    prompt_tokens_details: PromptDetails = PromptDetails()
    completion_tokens_details: CompletionDetails = CompletionDetails()


FinishReason = Literal["stop", "length"]


class UrlCitation(Struct, frozen=True):
    """The address of a file, and where the text links to it."""

    url: str
    title: str
    start_index: int
    end_index: int


class Annotation(Struct, frozen=True):
    """A file that the agent has sent, in the form in which OpenAI names addresses."""

    url_citation: UrlCitation
    type: Literal["url_citation"] = "url_citation"


class AnswerMessage(Struct, frozen=True):
    """The agent's answer; it ends with links to the files that ``annotations`` name."""

    content: str
    role: Literal["assistant"] = "assistant"
    refusal: str | None = None
    annotations: tuple[Annotation, ...] | UnsetType = UNSET


class Choice(Struct, frozen=True):
    """The only choice."""

    message: AnswerMessage
    finish_reason: FinishReason
    index: int = 0
    logprobs: None = None


class ChatCompletion(Struct, frozen=True, kw_only=True):
    """A complete answer."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: tuple[Choice, ...]
    usage: CompletionUsage


class Delta(Struct, frozen=True, omit_defaults=True):
    """New text, and files at the end."""

    role: str | UnsetType = UNSET
    content: str | UnsetType = UNSET
    annotations: tuple[Annotation, ...] | UnsetType = UNSET


class ChunkChoice(Struct, frozen=True):
    """The change of the only choice."""

    delta: Delta
    finish_reason: FinishReason | None = None
    index: int = 0
    logprobs: None = None


class ToolNews(Struct, frozen=True, omit_defaults=True):
    """Progress of one of the agent's tools: an extra field that OpenAI clients ignore."""

    type: Literal["tool.called", "tool.answered"]
    call_id: str
    name: str
    summary: str = ""
    failed: bool = False
    seconds: float = 0.0
    files: tuple[ApiFile, ...] = ()


class Chunk(Struct, frozen=True, kw_only=True):
    """A piece of a streamed answer."""

    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    choices: tuple[ChunkChoice, ...]
    usage: CompletionUsage | UnsetType | None = UNSET
    talaria: ToolNews | UnsetType = UNSET
