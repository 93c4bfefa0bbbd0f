"""What a turn does, shown as it happens: the reply, tool calls as single lines, a spinner with the time."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, assert_never

from msgspec import Struct

from talaria.cli.approval import decision_record, heading
from talaria.cli.cells import cut, harmless
from talaria.cli.rendering.diff import count_changes, render_diff
from talaria.cli.rendering.document import render
from talaria.cli.rendering.notice import render_notice, wrap_text
from talaria.cli.rendering.stream import MarkdownStream
from talaria.cli.rendering.themes import Theme
from talaria.cli.showing import REPORTS
from talaria.commands.command import Display
from talaria.commands.markdown import plain
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
    TurnEnd,
    TurnEvent,
    TurnFailed,
    TurnOutOfBudget,
    TurnStopped,
)
from talaria.sessions.waking import is_report

_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_PACE = 0.1
_UNFOLDED_LINES = 20
_DIFF_LINES = 20
_ASKED_DIFF_LINES = 60
_RUNNING_LINES = 6
_RUNNING_STEPS = 4
_REMEMBERED = 20
_OWN_LINES = 12
_ROWS_BELOW = 6
_LEAST_LIVE = 3


class Printer(Protocol):
    """Where it is shown."""

    @property
    def width(self) -> int:
        """How many columns there are."""

    @property
    def height(self) -> int:
        """How many rows there are."""

    def print(self, text: str, live: str | None = None) -> None:
        """Add whole lines for good, and replace the live part with it."""

    def set_live(self, text: str) -> None:
        """Replace the live part."""


class Running(Struct):
    """A tool call that is going on; ``steps`` are the last ones, by who takes them."""

    summary: str
    began: float
    printed: str = ""
    steps: dict[str, str] = {}


class Done(Struct, frozen=True):
    """A tool call that is over, or a change that was asked about; ``diff`` is what it changes in a file."""

    summary: str
    text: str
    diff: str = ""


class Activity:
    """Turns events into text. `tick` puts it on the screen, so many times a second and no more.

    There is no spinner while ``asking`` says that it is the person who is waited for.
    """

    def __init__(
        self, printer: Printer, theme: Theme, display: Callable[[], Display], asking: Callable[[], bool]
    ) -> None:
        self._printer = printer
        self._theme = theme
        self._display = display
        self._asking = asking
        self._stream = MarkdownStream(theme, lambda: printer.width)
        self._final: list[str] = []
        self._running: dict[str, Running] = {}
        self._done: deque[Done] = deque(maxlen=_REMEMBERED)
        self._began: float | None = None
        self._replying = False
        self._thought = ""
        self._waiting: list[tuple[str, str]] = []
        self._asked_diff = ""
        self._spaced = True
        self._changed = False

    def change_theme(self, theme: Theme) -> None:
        """Use other colours from now on."""
        self._theme = theme
        self._stream = MarkdownStream(theme, lambda: self._printer.width)

    def begin(self) -> None:
        """Show that something is going on."""
        if self._began is None:
            self._began = time.monotonic()
        self._changed = True

    def end(self) -> None:
        """Show that nothing is going on any more."""
        self._began = None
        self._running.clear()
        self._changed = True

    def add(self, text: str) -> None:
        """Print whole lines that are final; a reply that is being written goes on below them."""
        if text:
            self._final.append(text)
            self._spaced = text.endswith("\n\n") or text == "\n"
        self._changed = True

    def space(self) -> None:
        """Leave a line free, unless one is."""
        if not self._spaced:
            self.add("\n")

    def add_dim(self, text: str) -> None:
        """Print Markdown that stands back."""
        self.add(render_notice(text, self._theme, self._theme.dim, self._printer.width))

    def add_approval(self, asked: ApprovalAsked) -> None:
        """Print what an approval is asked for: exactly what would happen, and why that is asked."""
        self._end_reply()
        self.space()
        theme, width = self._theme, self._printer.width
        self.add(wrap_text(heading(asked), theme.bold, width))
        self.add(wrap_text(asked.summary, theme.inline_code, width, first="  ", rest="  "))
        if asked.diff:
            self._done.append(Done(asked.summary, "", asked.diff))
            self._asked_diff = asked.diff
            self.add(render_diff(asked.diff, theme, width, most=_ASKED_DIFF_LINES))
        self.add(wrap_text(f"Reason: {asked.reason}", theme.dim, width))

    def add_decision(self, decision: str) -> None:
        """Print what was decided; a refusal is reported by the call that was refused."""
        record = decision_record(decision)
        if record:
            self.add(wrap_text(f"✓ {record}", self._theme.tool, self._printer.width))

    def add_own(self, shown: str, pictures: Sequence[str] = (), *, pending: str | None = None) -> None:
        """Print what the person sent.

        ``pending`` is the whole text of a message that waits for the running turn: it is printed when that is over, or
        when the message joins it.
        """
        named = [f"[{Path(picture).name}]" for picture in pictures]
        said = " ".join([shown, *named]).strip()
        if pending is not None:
            self._waiting.append((pending, said))
        else:
            self.space()
            self.add(self._own(said))
        self._changed = True

    def add_said(self, text: str, author: str) -> None:
        """Print what was said elsewhere, with the name of whoever said it where that is known."""
        self.space()
        if author:
            quoted = f"**{plain(author)}:** {text}".replace("\n", "\n> ")
            self.add(render(f"> {quoted}", self._theme, self._printer.width).rstrip("\n") + "\n")
        else:
            self.add(self._own(text))

    def event(self, event: TurnEvent) -> None:
        """Take note of what happens."""
        self._changed = True
        match event:
            case TextAdded(text):
                self._add_reply(text)
            case ReasoningAdded(text):
                self._add_thought(text)
            case ToolCalled() | ToolProgressed() | ToolAnswered() | ToolRefused():
                self._follow_call(event)
            case PersonJoined(text):
                self._end_reply()
                shown = [said for whole, said in self._waiting if whole == text]
                self._waiting = [one for one in self._waiting if one[0] != text]
                self.add_own(shown[0] if shown else text)
            case Noticed(text, lasting):
                self._add_notice(text, lasting=lasting)
            case TurnAnswered() | TurnStopped() | TurnFailed() | TurnOutOfBudget():
                self._end_turn(event)
            case TurnBegan(said=said) if is_report(said):
                self.space()
                self.add_dim(REPORTS)
            case ModelCalled():
                self._end_reply()
            case TurnBegan() | ApprovalAsked() | QuestionAsked():
                pass
            case _:
                assert_never(event)

    def break_off(self) -> None:
        """Show no more of what is going on, and leave what was shown."""
        self._end_reply()
        self.end()

    def unfold(self) -> str:
        """Return the whole output of the last tool call, and forget it; empty when there is none."""
        if not self._done:
            return ""
        last = self._done.pop()
        head = self._styled(f"{last.summary}\n", self._theme.tool)
        return head + (self._diff(last.diff, 0) if last.diff else self._block(last.text))

    def tick(self) -> None:
        """Put on the screen what has changed since the last time."""
        if not self._changed and self._began is None:
            return
        self._changed = False
        final, self._final = "".join(self._final), []
        live = self._live()
        if final:
            self._printer.print(final, live)
        else:
            self._printer.set_live(live)

    def _add_notice(self, text: str, *, lasting: bool) -> None:
        """Print a notice; one that lasts is Markdown and wrapped at words, as in a chat."""
        if not lasting:
            self.add_dim(text)
            return
        self.space()
        self.add(f"{render(text, self._theme, self._printer.width).rstrip()}\n\n")

    def _follow_call(self, event: ToolCalled | ToolProgressed | ToolAnswered | ToolRefused) -> None:
        match event:
            case ToolCalled(call=call, summary=summary):
                self._end_reply()
                self._running[call.id] = Running(summary or call.name, time.monotonic())
            case ToolProgressed(call_id=call_id, text=text, step=True) if call_id in self._running:
                self._running[call_id].steps[text.partition(":")[0]] = text
            case ToolProgressed(call_id=call_id, text=text) if call_id in self._running:
                self._running[call_id].printed = text
            case ToolAnswered():
                self._finish_call(event)
            case ToolRefused(summary=summary, reason=reason):
                self._end_reply()
                end = ", refused"
                self.add(self._styled(self._fitting(f"✗ {summary}", end) + "\n", self._theme.error))
                self.add(wrap_text(reason, self._theme.dim, self._printer.width, first="  ", rest="  "))

    def _end_turn(self, end: TurnEnd) -> None:
        self._end_reply()
        match end:
            case TurnStopped():
                self.add_dim("Stopped.")
            case TurnFailed(owner_advice=text) | TurnOutOfBudget(text=text):
                self.add(render_notice(text, self._theme, self._theme.error, self._printer.width))
        self.space()
        if self._waiting:
            self.add(self._own(self._waiting.pop(0)[1]))

    def _own(self, said: str) -> str:
        first, *rest = said.split("\n")
        if len(rest) > _OWN_LINES:
            rest = [*rest[:_OWN_LINES], f"… {len(rest) - _OWN_LINES} more lines"]
        return wrap_text("\n".join([first, *rest]), self._theme.bold, self._printer.width, first="❯ ", rest="  ")

    def _add_reply(self, text: str) -> None:
        if not self._replying:
            self._end_thought()
            self.space()
            self._replying = True
        self.add(self._stream.feed(text))

    def _end_reply(self) -> None:
        self._end_thought()
        if self._replying:
            self.add(self._stream.end())
            self._replying = False
            self.space()

    def _add_thought(self, text: str) -> None:
        if not self._display().reasoning:
            return
        *whole, self._thought = (self._thought + text).split("\n")
        self.add("".join(self._styled(f"{line}\n", self._theme.dim) for line in whole))

    def _end_thought(self) -> None:
        if self._thought:
            self.add(self._styled(f"{self._thought}\n", self._theme.dim))
            self._thought = ""

    def _finish_call(self, event: ToolAnswered) -> None:
        running = self._running.pop(event.result.call_id, None)
        summary = running.summary if running else event.name
        self._done.append(Done(summary, event.result.text, event.diff))
        progress = self._display().progress
        if progress == "off" and not event.result.failed:
            return
        mark, style = ("✗", self._theme.error) if event.result.failed else ("✓", self._theme.tool)
        line = self._fitting(f"{mark} {summary}", f"{_changes(event.diff)}  {event.seconds:.1f} s")
        self.add(self._styled(line + "\n", style))
        if event.diff and event.diff == self._asked_diff:
            self._asked_diff = ""
        elif event.diff:
            self.add(self._diff(event.diff, 0 if progress == "verbose" else _DIFF_LINES))
        elif progress == "verbose":
            self.add(self._block(event.result.text, _UNFOLDED_LINES))
        elif event.result.failed:
            self.add(self._block(event.result.text, 1))

    def _live(self) -> str:
        """Return what is not final: the end of the reply, running calls, the spinner."""
        parts = [self._stream.tail()] if self._replying else []
        if self._thought:
            parts.append(self._styled(self._thought[-self._printer.width :], self._theme.dim))
        now = time.monotonic()
        frame = _FRAMES[int(now / _PACE) % len(_FRAMES)]
        for running in self._running.values():
            line = self._fitting(f"{frame} {running.summary}", f"  {now - running.began:.1f} s")
            parts.append(self._styled(line, self._theme.tool))
            steps = list(running.steps.values())[-_RUNNING_STEPS:] if self._display().progress != "off" else []
            parts += [self._styled(self._fitting(f"  {step}", ""), self._theme.dim) for step in steps]
            if self._display().progress == "verbose" and running.printed:
                parts.append(self._block(running.printed, -_RUNNING_LINES).rstrip("\n"))
        if self._began is not None and not self._running and not self._asking():
            doing = "answering" if self._replying else "thinking"
            line = self._fitting(f"{frame} {doing} {now - self._began:.0f} s  (Esc stops)", "")
            parts.append(self._styled(line, self._theme.dim))
        parts += [self._styled(self._fitting(f"  waits: {said}", ""), self._theme.dim) for _, said in self._waiting]
        lines = "\n".join(part.rstrip("\n") for part in parts if part).split("\n")
        return "\n".join(lines[-max(_LEAST_LIVE, self._printer.height - _ROWS_BELOW) :])

    def _diff(self, diff: str, most: int) -> str:
        return render_diff(diff, self._theme, self._printer.width, most=most)

    def _block(self, text: str, most: int = 0) -> str:
        """Return lines of output, indented; ``most`` keeps so many from the beginning, or from the end if negative."""
        lines = text.rstrip("\n").split("\n")
        kept = lines[:most] if most > 0 else lines[most:] if most < 0 else lines
        shown = [self._fitting(f"  {line}", "") for line in kept]
        if most > 0 and len(lines) > most:
            shown.append(f"  … {len(lines) - most} more lines, Ctrl-O shows them")
        return "".join(self._styled(f"{line}\n", self._theme.dim) for line in shown)

    def _fitting(self, text: str, end: str) -> str:
        plain = harmless(text.replace("\n", " ").replace("\t", "    "))
        return cut(plain, max(self._printer.width - len(end) - 1, 8)) + end

    def _styled(self, text: str, style: str) -> str:
        if not style:
            return harmless(text)
        bare = harmless(text.rstrip("\n"))
        return f"\x1b[{style}m{bare}\x1b[0m" + "\n" * (len(text) - len(text.rstrip("\n")))


def _changes(diff: str) -> str:
    if not diff:
        return ""
    added, removed = count_changes(diff)
    return f"  +{added} -{removed}"
