"""What the agent says, in the words of chat completions."""

import time

import msgspec

from talaria.api.completions.wire import (
    AnswerMessage,
    Choice,
    Chunk,
    ChunkChoice,
    Completion,
    CompletionDetails,
    CompletionUsage,
    Delta,
    FinishReason,
    PromptDetails,
    ToolNews,
)
from talaria.api.http import sse
from talaria.api.problems import Problem, server_problem
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

CUT_OFF = "The turn was cut off, since the server ends. Ask again in a moment."
DONE = b"data: [DONE]\n\n"
TOOL_EVENT = "talaria.tool"
_BAD_GATEWAY, _UNAVAILABLE = 502, 503
_BREAK = "\n\n"

_encode = msgspec.json.Encoder().encode


class Answer:
    """Takes in the events of a turn, and knows what came of it.

    What is said before and behind the use of tools is parted by a blank line.
    """

    def __init__(self) -> None:
        self.usage = Usage()
        self.end: TurnAnswered | TurnStopped | TurnOutOfBudget | TurnFailed | None = None
        self._pieces: list[str] = []
        self._pause = False

    @property
    def text(self) -> str:
        """All that was said."""
        return "".join(self._pieces)

    def take(self, event: TurnEvent) -> str:
        """Take an event, and return the words that are new with it."""
        match event:
            case TextAdded(text):
                new = _BREAK + text if self._pause and self._pieces else text
                self._pause = False
            case TurnOutOfBudget(text=text):
                new, self.end = (_BREAK if self._pieces else "") + text, event
            case TurnAnswered() | TurnStopped() | TurnFailed():
                new, self.end = "", event
                if isinstance(event, TurnAnswered) and not self._pieces:
                    new = event.text
            case ModelCalled(usage=usage):
                new, self._pause = "", True
                self.usage = _sum(self.usage, usage)
            case _:
                new = ""
        if new:
            self._pieces.append(new)
        return new

    @property
    def final(self) -> str:
        """What a client gets that waits for the whole answer: without what was said on the way to it."""
        return self.end.text if isinstance(self.end, TurnAnswered) else self.text

    @property
    def finish_reason(self) -> FinishReason:
        """Why it ends here."""
        return "length" if isinstance(self.end, TurnOutOfBudget) else "stop"

    @property
    def problem(self) -> Problem | None:
        """What went wrong, if there is no answer."""
        if isinstance(self.end, TurnFailed):
            return server_problem(self.end.text, _BAD_GATEWAY, code="turn_failed")
        return server_problem(CUT_OFF, _UNAVAILABLE, code="ending") if self.end is None else None

    def counted(self) -> CompletionUsage:
        """Return what it used."""
        used = self.usage
        return CompletionUsage(
            prompt_tokens=used.input_tokens,
            completion_tokens=used.output_tokens,
            total_tokens=used.input_tokens + used.output_tokens,
            prompt_tokens_details=PromptDetails(used.cache_read_tokens),
            completion_tokens_details=CompletionDetails(used.reasoning_tokens),
        )

    def completion(self, model: str) -> Completion:
        """Return the whole answer."""
        choice = Choice(AnswerMessage(self.final), self.finish_reason)
        return Completion(id=new_name(), created=_now(), model=model, choices=(choice,), usage=self.counted())


class Chunks:
    """Writes one answer as chunks; ``counting`` says that the client wants to know what it used."""

    def __init__(self, model: str, *, counting: bool) -> None:
        self._blank = Chunk(
            id=new_name(), created=_now(), model=model, choices=(), usage=None if counting else msgspec.UNSET
        )
        self._counting = counting
        said = self._written(ChunkChoice(Delta(content="\0")))
        # Most chunks differ in their words alone: the rest is encoded once.
        self._before, self._behind = said.split(_encode("\0"))

    def begin(self) -> bytes:
        """Return the chunk that says who speaks."""
        return self._written(ChunkChoice(Delta(role="assistant", content="")))

    def words(self, text: str) -> bytes:
        """Return a chunk of words."""
        return self._before + _encode(text) + self._behind

    def news(self, event: ToolCalled | ToolAnswered, *, named: bool) -> bytes:
        """Return what a tool does: beside an empty chunk, or as an event of its own name."""
        told = _news(event)
        if named:
            return sse(_encode(told), event=TOOL_EVENT)
        return _data(msgspec.structs.replace(self._blank, choices=(ChunkChoice(Delta()),), talaria=told))

    def end(self, answer: Answer) -> bytes:
        """Return what comes behind the last words."""
        if answer.problem is not None:
            return self.broken(answer.problem)
        last = self._written(ChunkChoice(Delta(), answer.finish_reason))
        used = _data(msgspec.structs.replace(self._blank, usage=answer.counted())) if self._counting else b""
        return last + used + DONE

    def broken(self, problem: Problem) -> bytes:
        """Return what is said where there is no answer."""
        return sse(_encode(problem.answer)) + DONE

    def _written(self, choice: ChunkChoice) -> bytes:
        return _data(msgspec.structs.replace(self._blank, choices=(choice,)))


def new_name() -> str:
    """Return an id for an answer."""
    return f"chatcmpl-{new_id()}"


def _data(chunk: Chunk) -> bytes:
    return sse(_encode(chunk))


def _news(event: ToolCalled | ToolAnswered) -> ToolNews:
    if isinstance(event, ToolCalled):
        return ToolNews("tool.called", event.call.id, event.call.name, event.summary)
    result = event.result
    return ToolNews("tool.answered", result.call_id, event.name, "", result.failed, round(event.seconds, 3))


def _sum(one: Usage, other: Usage) -> Usage:
    fields = Usage.__struct_fields__
    return Usage(**{name: getattr(one, name) + getattr(other, name) for name in fields})


def _now() -> int:
    return int(time.time())
