"""Text of a preview: tool calls as single lines, followed by the reply so far."""

import re
from collections import deque
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
    StoreBlocked,
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
from talaria.core.formatting import HARMFUL
from talaria.core.messages import SILENT

_UNSAFE = re.compile(rf"{HARMFUL}|`")
_BREAK = "  \n"  # Markdown line break within a paragraph
_MAX_LINES = 8
_MAX_STEPS = 4
_WIDTH = 100
_DETAIL_LINES = 5
_MAX_REASONING = 400


class PreviewPassage(Struct, frozen=True):
    """Completed part of a preview; with ``stays`` the following text is posted below it, otherwise replaces it."""

    text: str
    stays: bool
    reply_text: str = ""


class _Call(Struct):
    name: str
    summary: str
    arguments: str
    mark: str = "…"
    answer: str = ""
    diff: str = ""
    steps: dict[str, str] = {}


class _BoundedText:
    """Text that grows up to a limit; the rest is dropped."""

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


class PreviewText:
    """Preview text of one turn, built from its events.

    ``passages`` are the texts before a tool call or question, oldest first. Of each reply text at most ``limit``
    characters are stored. Of each change to a file, ``diff_lines`` lines are shown.
    """

    def __init__(self, display: Display, limit: int, diff_lines: int = 0) -> None:
        self._display = display
        self._diff_lines = diff_lines
        self._limit = limit
        self._calls: dict[str, _Call] = {}
        self._notices: list[str] = []
        self._reasoning = ""
        self._previous_text = ""
        self._reply = _BoundedText(self._limit)
        self._is_new_call = False
        self.version = 0  # changes with the text
        self._last_tool = ""
        self._taken_lines = 0
        self.passages: deque[PreviewPassage] = deque()

    def set_display(self, display: Display) -> None:
        """Change what is shown from now on."""
        self._display = display

    def handle_event(self, event: TurnEvent) -> None:
        """Record an event of the turn."""
        self.version += 1
        match event:
            case TextAdded(text):
                self._add_text(text)
            case ReasoningAdded(text):
                self._reasoning = (self._reasoning + text)[-_MAX_REASONING:]
            case ToolCalled() | ToolProgressed() | ToolAnswered():
                self._follow_call(event)
            case Noticed(text):
                self._notices.append(text)
            case PersonJoined() | ApprovalAsked() | QuestionAsked():
                self._end_passage()
            case ModelCalled():
                self._is_new_call = True
            case TurnBegan() | ToolRefused() | StoreBlocked():
                pass
            case TurnAnswered() | TurnStopped() | TurnFailed() | TurnOutOfBudget():
                pass
            case _:
                assert_never(event)

    @property
    def text(self) -> str:
        """The preview as Markdown; text before the last tool call is replaced by text after it."""
        lines = _BREAK.join(self._format_lines()[-_MAX_LINES:])
        reasoning_text = self._quote_reasoning() if self._display.reasoning and not self._reply else ""
        before = "" if self._reply else self._previous_text
        reply = self._reply.text
        if SILENT.startswith(reply.strip()):  # it may become the reply that is not sent
            reply = ""
        return "\n\n".join(part for part in (before, lines, reasoning_text, reply) if part.strip())

    def mark_posted(self, passage: PreviewPassage) -> None:
        """Record that a passage has been posted in its own messages and is no longer part of the text."""
        if passage.reply_text == self._previous_text:
            self._previous_text = ""

    def take_new_lines(self) -> str:
        """Return the lines added since the last call, for networks without editing."""
        lines = self._format_lines()
        new, self._taken_lines = lines[self._taken_lines :], len(lines)
        return _BREAK.join(new[-_MAX_LINES:])

    def _add_text(self, text: str) -> None:
        """Add to the reply; text of another model call starts a new paragraph."""
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
            self.passages.append(PreviewPassage(self.text, stays=False, reply_text=self._reply.text))
            self._previous_text, self._reply = self._reply.text, _BoundedText(self._limit)
        self._reasoning = ""
        if self._progress != "new" or call.name != self._last_tool:
            self._calls[call_id] = call
        self._last_tool = call.name

    def _end_call(self, event: ToolAnswered) -> None:
        call = self._calls.get(event.result.call_id)
        if call is not None:
            call.mark = "✗" if event.result.failed else "✓"
            call.answer = event.result.text
            call.diff = event.diff

    def _end_passage(self) -> None:
        """End the current passage; later text belongs below the message or question that follows now."""
        if self.text:
            self.passages.append(PreviewPassage(self.text, stays=True))
        self._calls.clear()
        self._notices.clear()
        self._reasoning = self._previous_text = ""
        self._reply = _BoundedText(self._limit)
        self._taken_lines = 0

    @property
    def _progress(self) -> Progress:
        return self._display.progress

    def _format_lines(self) -> list[str]:
        if self._progress == "off":
            return []
        lines = [
            f"{call.mark} `{_shorten_to_line(call.summary)}`{self._format_detail(call)}{self._format_diff(call)}"
            for call in self._calls.values()
        ]
        return [*lines, *(f"_{_shorten_to_line(notice)}_" for notice in self._notices)]

    def _format_detail(self, call: _Call) -> str:
        if self._progress != "verbose":
            steps = list(call.steps.values())[-_MAX_STEPS:] if not call.answer else []
            return "".join(f"{_BREAK}`{_shorten_to_line(step)}`" for step in steps)
        lines = [
            _shorten_to_line(call.arguments),
            *(_shorten_to_line(line) for line in call.answer.split("\n")[:_DETAIL_LINES]),
        ]
        return "".join(f"{_BREAK}`{line}`" for line in lines if line.strip())

    def _format_diff(self, call: _Call) -> str:
        """Return the number of changed lines and the first of them, without context."""
        if not call.diff or not self._diff_lines:
            return ""
        changed = [line for line in call.diff.split("\n") if line[:1] in ("+", "-")]
        added = sum(line.startswith("+") for line in changed)
        shown = "".join(f"{_BREAK}`{_shorten_to_line(line)}`" for line in changed[: self._diff_lines])
        more = f"{_BREAK}_… {len(changed) - self._diff_lines} more lines_" if len(changed) > self._diff_lines else ""
        return f" +{added} -{len(changed) - added}{shown}{more}"

    def _quote_reasoning(self) -> str:
        return "\n".join(f"> {line}" for line in self._reasoning.strip().split("\n")) if self._reasoning.strip() else ""


def _shorten_to_line(text: str) -> str:
    plain = " ".join(_UNSAFE.sub("", text.replace("\n", " ")).split())
    return plain if len(plain) <= _WIDTH else f"{plain[: _WIDTH - 1]}…"
