"""Translate turn events into chat completions."""

import time

import msgspec
from msgspec import UNSET, UnsetType

from talaria.api.completions.wire import (
    Annotation,
    AnswerMessage,
    ChatCompletion,
    Choice,
    Chunk,
    ChunkChoice,
    CompletionDetails,
    CompletionUsage,
    Delta,
    FinishReason,
    PromptDetails,
    ToolNews,
    UrlCitation,
)
from talaria.api.files import ApiFile, content_path, to_api_files
from talaria.api.front_door import wrap_problem
from talaria.core.events import (
    ModelCalled,
    TextAdded,
    ToolAnswered,
    ToolCalled,
    TurnAnswered,
    TurnEvent,
    TurnFailed,
    TurnOutOfBudget,
    TurnStopped,
)
from talaria.core.ids import new_id
from talaria.core.messages import Usage
from talaria.http.errors import Problem, make_server_problem
from talaria.http.routing import format_sse

INTERRUPTED = "The server is shutting down and interrupted the turn. Try again in a moment."
DONE = b"data: [DONE]\n\n"
TOOL_EVENT = "talaria.tool"
_BAD_GATEWAY, _UNAVAILABLE = 502, 503
_PARAGRAPH = "\n\n"

_encode = msgspec.json.Encoder().encode


class CompletionCollector:
    """Collects the events of a turn and its result.

    Text before and after tool use is separated by a blank line. The answer ends with links to the files that the agent
    has sent, below ``address``.
    """

    def __init__(self, address: str = "") -> None:
        self.usage = Usage()
        self._address = address
        self._files: list[ApiFile] = []
        self.end: TurnAnswered | TurnStopped | TurnOutOfBudget | TurnFailed | None = None
        self._pieces: list[str] = []
        self._needs_break = False

    @property
    def text(self) -> str:
        """Return the whole text."""
        return "".join(self._pieces)

    def take(self, event: TurnEvent) -> str:
        """Process an event and return its new text."""
        match event:
            case TextAdded(text):
                new = _PARAGRAPH + text if self._needs_break and self._pieces else text
                self._needs_break = False
            case TurnOutOfBudget(text=text):
                new, self.end = (_PARAGRAPH if self._pieces else "") + text, event
            case TurnAnswered():
                new, self.end = "" if self._pieces else event.text, event
                new += self._format_links(self.text + new)
            case TurnStopped() | TurnFailed():
                new, self.end = "", event
            case ToolAnswered(result=result) if result.files:
                new = ""
                self._files += to_api_files(result.files)
            case ModelCalled(usage=usage):
                new, self._needs_break = "", True
                self.usage = _add_usage(self.usage, usage)
            case _:
                new = ""
        if new:
            self._pieces.append(new)
        return new

    @property
    def final(self) -> str:
        """Return the text for a client that doesn't stream: the final answer, without intermediate text."""
        return self.compose_final(self.end) if isinstance(self.end, TurnAnswered) else self.text

    def compose_final(self, end: TurnAnswered) -> str:
        """Return the final answer with links to its files."""
        return end.text + self._format_links(end.text)

    def compose_streamed(self) -> str:
        """Return all text with links to its files, before the end of the turn is processed."""
        return self.text + self._format_links(self.text)

    def list_annotations(self, text: str) -> tuple[Annotation, ...] | UnsetType:
        """Return the files of the answer, with the places of their links in its text."""
        found = []
        for file in self._files:
            url = self._make_url(file)
            start = max(text.find(url), 0)
            found.append(Annotation(UrlCitation(url, file.filename, start, start + len(url))))
        return tuple(found) or UNSET

    @property
    def finish_reason(self) -> FinishReason:
        """Return the finish reason."""
        return "length" if isinstance(self.end, TurnOutOfBudget) else "stop"

    @property
    def problem(self) -> Problem | None:
        """Return the error, if there is no answer."""
        if isinstance(self.end, TurnFailed):
            return make_server_problem(self.end.text, _BAD_GATEWAY, code="turn_failed")
        return make_server_problem(INTERRUPTED, _UNAVAILABLE, code="ending") if self.end is None else None

    def build_usage(self) -> CompletionUsage:
        """Return the usage."""
        used = self.usage
        return CompletionUsage(
            prompt_tokens=used.input_tokens,
            completion_tokens=used.output_tokens,
            total_tokens=used.input_tokens + used.output_tokens,
            prompt_tokens_details=PromptDetails(used.cache_read_tokens),
            completion_tokens_details=CompletionDetails(used.reasoning_tokens),
        )

    def build_completion(self, model: str) -> ChatCompletion:
        """Return the complete answer."""
        text = self.final
        choice = Choice(AnswerMessage(text, annotations=self.list_annotations(text)), self.finish_reason)
        return ChatCompletion(
            id=new_completion_id(), created=_get_timestamp(), model=model, choices=(choice,), usage=self.build_usage()
        )

    def _format_links(self, text: str) -> str:
        links = [self._format_link(file) for file in self._files if self._make_url(file) not in text]
        return (_PARAGRAPH if text else "") + "\n".join(links) if links else ""

    def _format_link(self, file: ApiFile) -> str:
        label = file.filename.replace("[", "(").replace("]", ")")
        return f"{'!' if file.media_type.startswith('image/') else ''}[{label}]({self._make_url(file)})"

    def _make_url(self, file: ApiFile) -> str:
        return f"{self._address}{content_path(file.id)}"


class ChunkEncoder:
    """Encodes one answer as chunks; ``counting`` means that the client wants the usage."""

    def __init__(self, model: str, *, counting: bool) -> None:
        self._blank = Chunk(
            id=new_completion_id(),
            created=_get_timestamp(),
            model=model,
            choices=(),
            usage=None if counting else msgspec.UNSET,
        )
        self._include_usage = counting
        template = self._encode_choice(ChunkChoice(Delta(content="\0")))
        # Most chunks differ only in their text: the rest is encoded once.
        self._before, self._after = template.split(_encode("\0"))

    def begin(self) -> bytes:
        """Return the first chunk, with the role."""
        return self._encode_choice(ChunkChoice(Delta(role="assistant", content="")))

    def encode_text(self, text: str) -> bytes:
        """Return a chunk of text."""
        return self._before + _encode(text) + self._after

    def encode_tool_progress(self, event: ToolCalled | ToolAnswered, *, named: bool) -> bytes:
        """Return tool progress: in an empty chunk, or as a separate event."""
        tool_event = _describe_tool(event)
        if named:
            return format_sse(_encode(tool_event), event=TOOL_EVENT)
        return _encode_chunk(msgspec.structs.replace(self._blank, choices=(ChunkChoice(Delta()),), talaria=tool_event))

    def end(self, answer: CompletionCollector) -> bytes:
        """Return the final chunks."""
        if answer.problem is not None:
            return self.encode_error(answer.problem)
        delta = Delta(annotations=answer.list_annotations(answer.text))
        last = self._encode_choice(ChunkChoice(delta, answer.finish_reason))
        used = (
            _encode_chunk(msgspec.structs.replace(self._blank, usage=answer.build_usage()))
            if self._include_usage
            else b""
        )
        return last + used + DONE

    def encode_error(self, problem: Problem) -> bytes:
        """Return the error chunk of a failed answer."""
        return format_sse(_encode(wrap_problem(problem))) + DONE

    def _encode_choice(self, choice: ChunkChoice) -> bytes:
        return _encode_chunk(msgspec.structs.replace(self._blank, choices=(choice,)))


def new_completion_id() -> str:
    """Return an id for an answer."""
    return f"chatcmpl-{new_id()}"


def _encode_chunk(chunk: Chunk) -> bytes:
    return format_sse(_encode(chunk))


def _describe_tool(event: ToolCalled | ToolAnswered) -> ToolNews:
    if isinstance(event, ToolCalled):
        return ToolNews("tool.called", event.call.id, event.call.name, event.summary)
    result = event.result
    files = to_api_files(result.files) if result.files else ()
    return ToolNews("tool.answered", result.call_id, event.name, "", result.failed, round(event.seconds, 3), files)


def _add_usage(one: Usage, other: Usage) -> Usage:
    fields = Usage.__struct_fields__
    return Usage(**{name: getattr(one, name) + getattr(other, name) for name in fields})


def _get_timestamp() -> int:
    return int(time.time())
