"""What a turn has to show while it runs: its tool calls as single lines, then the words of the reply so far."""

import re
from collections import deque
from collections.abc import Callable
from typing import assert_never

from msgspec import Struct

from talaria.commands.command import Display, Progress
from talaria.core.events import (
    ApprovalAsked,
    ModelCalled,
    Noticed,
    PersonJoined,
    QuestionAsked,
    ReasoningAdded,
    TextAdded,
    ToolAnswered,
    ToolCalled,
    ToolProgressed,
    ToolRefused,
    TurnAnswered,
    TurnBegan,
    TurnEvent,
    TurnFailed,
    TurnOutOfBudget,
    TurnStopped,
)
from talaria.core.harmless import HARMFUL
from talaria.gateway.long_reply import REPLY_LIMIT

_UNFIT = re.compile(rf"{HARMFUL}|`")
_BREAK = "  \n"  # Markdown's end of a line within a paragraph
_LINES = 8
_STEPS = 4
_WIDTH = 100
_DETAIL_LINES = 5
_THOUGHT = 400


class Passage(Struct, frozen=True):
    """Something that was said on the way and is over; ``stays`` where what comes belongs below it, not in its place."""

    text: str
    stays: bool
    words: str = ""


class _Call(Struct):
    name: str
    summary: str
    arguments: str
    mark: str = "…"
    answer: str = ""
    steps: dict[str, str] = {}


class _Text:
    """A text that grows up to a limit."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pieces: list[str] = []
        self._length = 0

    def __bool__(self) -> bool:
        return self._length > 0

    def add(self, text: str) -> None:
        text = text[: self._limit - self._length]
        self._pieces.append(text)
        self._length += len(text)

    @property
    def text(self) -> str:
        self._pieces = ["".join(self._pieces)]
        return self._pieces[0]


class Draft:
    """Follows the events of one turn. ``passages`` are what was said before a call or a question, oldest first.

    Of what is said, ``limit`` characters are kept.
    """

    def __init__(self, display: Callable[[], Display], limit: int = REPLY_LIMIT) -> None:
        self._display = display
        self._limit = limit
        self._calls: dict[str, _Call] = {}
        self._notices: list[str] = []
        self._thought = ""
        self._before = ""
        self._reply = _Text(self._limit)
        self._is_new_call = False
        self.version = 0  # changes with the text
        self._last_tool = ""
        self._told = 0
        self.passages: deque[Passage] = deque()

    def event(self, event: TurnEvent) -> None:
        """Take note of what happens."""
        self.version += 1
        match event:
            case TextAdded(text):
                self._add_text(text)
            case ReasoningAdded(text):
                self._thought = (self._thought + text)[-_THOUGHT:]
            case ToolCalled() | ToolProgressed() | ToolAnswered():
                self._follow_call(event)
            case Noticed(text):
                self._notices.append(text)
            case PersonJoined() | ApprovalAsked() | QuestionAsked():
                self._end_passage()
            case ModelCalled():
                self._is_new_call = True
            case TurnBegan() | ToolRefused():
                pass
            case TurnAnswered() | TurnStopped() | TurnFailed() | TurnOutOfBudget():
                pass
            case _:
                assert_never(event)

    @property
    def text(self) -> str:
        """All of it, as Markdown; what was said before the last call gives way to what is said behind it."""
        lines = _BREAK.join(self._lines()[-_LINES:])
        thought = self._quoted_thought() if self._display().reasoning and not self._reply else ""
        before = "" if self._reply else self._before
        return "\n\n".join(part for part in (before, lines, thought, self._reply.text) if part.strip())

    def was_said(self, passage: Passage) -> None:
        """Take note that a passage stands in messages of its own and need not be shown any more."""
        if passage.words == self._before:
            self._before = ""

    def new_lines(self) -> str:
        """Return the lines that were not asked for before, for a network where nothing can be edited."""
        lines = self._lines()
        new, self._told = lines[self._told :], len(lines)
        return _BREAK.join(new[-_LINES:])

    def _add_text(self, text: str) -> None:
        """Add to the reply; what another call of the model says is another paragraph."""
        if self._is_new_call and self._reply:
            self._reply.add("\n\n")
        self._is_new_call = False
        self._reply.add(text)

    def _follow_call(self, event: ToolCalled | ToolProgressed | ToolAnswered) -> None:
        match event:
            case ToolCalled(call=call, summary=summary):
                self._begin_call(call.id, _Call(call.name, summary or call.name, call.arguments))
            case ToolProgressed(call_id=call_id, text=text, step=True) if call_id in self._calls:
                self._calls[call_id].steps[text.partition(":")[0]] = text
            case ToolAnswered():
                self._end_call(event)

    def _begin_call(self, call_id: str, call: _Call) -> None:
        if self._reply.text.strip():
            self.passages.append(Passage(self.text, stays=False, words=self._reply.text))
            self._before, self._reply = self._reply.text, _Text(self._limit)
        self._thought = ""
        if self._progress != "new" or call.name != self._last_tool:
            self._calls[call_id] = call
        self._last_tool = call.name

    def _end_call(self, event: ToolAnswered) -> None:
        call = self._calls.get(event.result.call_id)
        if call is not None:
            call.mark = "✗" if event.result.failed else "✓"
            call.answer = event.result.text

    def _end_passage(self) -> None:
        """What comes from here on belongs below what somebody else writes now."""
        if self.text:
            self.passages.append(Passage(self.text, stays=True))
        self._calls.clear()
        self._notices.clear()
        self._thought = self._before = ""
        self._reply = _Text(self._limit)
        self._told = 0

    @property
    def _progress(self) -> Progress:
        return self._display().progress

    def _lines(self) -> list[str]:
        if self._progress == "off":
            return []
        lines = [f"{call.mark} `{_one_line(call.summary)}`{self._detail(call)}" for call in self._calls.values()]
        return [*lines, *(f"_{_one_line(notice)}_" for notice in self._notices)]

    def _detail(self, call: _Call) -> str:
        if self._progress != "verbose":
            steps = list(call.steps.values())[-_STEPS:] if not call.answer else []
            return "".join(f"{_BREAK}`{_one_line(step)}`" for step in steps)
        lines = [_one_line(call.arguments), *(_one_line(line) for line in call.answer.split("\n")[:_DETAIL_LINES])]
        return "".join(f"{_BREAK}`{line}`" for line in lines if line.strip())

    def _quoted_thought(self) -> str:
        return "\n".join(f"> {line}" for line in self._thought.strip().split("\n")) if self._thought.strip() else ""


def _one_line(text: str) -> str:
    plain = " ".join(_UNFIT.sub("", text.replace("\n", " ")).split())
    return plain if len(plain) <= _WIDTH else f"{plain[: _WIDTH - 1]}…"
