"""Live view of a turn: the reply, tool calls as single lines, a spinner with the time."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, assert_never

from msgspec import Struct

from talaria.cli.chat.approval import format_approval_heading
from talaria.cli.chat.event_printer import REPORT_HEADING
from talaria.cli.markdown.stream import MarkdownStream, count_changes, render, render_diff, render_notice, wrap_text
from talaria.cli.markdown.styled_text import Theme
from talaria.cli.terminal_text import cut, escape_control
from talaria.commands.arguments import escape_markdown
from talaria.commands.command import Display
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
    TurnEnd,
    TurnEvent,
    TurnFailed,
    TurnOutOfBudget,
    TurnStopped,
)
from talaria.runtime.completions import is_report

_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_FRAME_SECONDS = 0.1
_UNFOLDED_LINES = 20
_DIFF_LINES = 20
_ASKED_DIFF_LINES = 60
_RUNNING_LINES = 6
_RUNNING_STEPS = 4
_MAX_FINISHED_CALLS = 20
_MAX_MESSAGE_LINES = 12
_ROWS_BELOW = 6
_MIN_LIVE_ROWS = 3


class ActivityOutput(Protocol):
    """Output for the live view."""

    @property
    def width(self) -> int:
        """Number of columns."""

    @property
    def height(self) -> int:
        """Number of rows."""

    def print(self, text: str, live: str | None = None) -> None:
        """Print final lines; ``live`` replaces the live part."""

    def set_live(self, text: str) -> None:
        """Replace the live part."""


class RunningCall(Struct):
    """Tool call in progress; ``steps`` has the latest step by its source."""

    summary: str
    began: float
    printed: str = ""
    steps: dict[str, str] = {}


class FinishedCall(Struct, frozen=True):
    """Finished tool call or proposed change; ``diff`` is its change to a file."""

    summary: str
    text: str
    diff: str = ""


class _PendingMessage(Struct):
    """Message that waits for the running turn; it is shown as queued once it is stored."""

    text: str
    shown: str
    is_stored: bool = False


class Activity:
    """View that turns events into text; `redraw_changes` redraws it at a limited rate.

    The spinner is hidden while ``is_asking`` says that the user has to answer.
    """

    def __init__(
        self, printer: ActivityOutput, theme: Theme, display: Callable[[], Display], is_asking: Callable[[], bool]
    ) -> None:
        self._printer = printer
        self._theme = theme
        self._display = display
        self._is_asking = is_asking
        self._stream = MarkdownStream(theme, lambda: printer.width)
        self._final: list[str] = []
        self._running: dict[str, RunningCall] = {}
        self._done: deque[FinishedCall] = deque(maxlen=_MAX_FINISHED_CALLS)
        self._began: float | None = None
        self._replying = False
        self._thought = ""
        self._pending_messages: list[_PendingMessage] = []
        self._asked_diff = ""
        self._spaced = True
        self._changed = False

    def change_theme(self, theme: Theme) -> None:
        """Use another theme from now on."""
        self._theme = theme
        self._stream = MarkdownStream(theme, lambda: self._printer.width)

    def begin(self) -> None:
        """Show that work is in progress."""
        if self._began is None:
            self._began = time.monotonic()
        self._changed = True

    def end(self) -> None:
        """Show that no work is in progress."""
        self._began = None
        self._running.clear()
        self._changed = True

    def add(self, text: str) -> None:
        """Print final lines; a reply in progress continues below them."""
        if text:
            self._final.append(text)
            self._spaced = text.endswith("\n\n") or text == "\n"
        self._changed = True

    def add_blank_line(self) -> None:
        """Print an empty line, unless the last one is empty."""
        if not self._spaced:
            self.add("\n")

    def add_dim(self, text: str) -> None:
        """Print dimmed Markdown."""
        self.add(render_notice(text, self._theme, self._theme.dim, self._printer.width))

    def add_approval(self, asked: ApprovalAsked) -> None:
        """Print an approval request: the exact action and why it needs approval."""
        self._end_reply()
        self.add_blank_line()
        theme, width = self._theme, self._printer.width
        self.add(wrap_text(format_approval_heading(asked), theme.bold, width))
        self.add(wrap_text(asked.summary, theme.inline_code, width, first="  ", rest="  "))
        if asked.diff:
            self._done.append(FinishedCall(asked.summary, "", asked.diff))
            self._asked_diff = asked.diff
            self.add(render_diff(asked.diff, theme, width, most=_ASKED_DIFF_LINES))
        self.add(wrap_text(f"Reason: {asked.reason}", theme.dim, width))

    def add_decision(self, record: str) -> None:
        """Print the record of a decision, if there is one."""
        if record:
            self.add(wrap_text(f"✓ {record}", self._theme.tool, self._printer.width))

    def add_user_message(self, shown: str, pictures: Sequence[str] = (), *, pending: str | None = None) -> None:
        """Print the user's message.

        ``pending`` is the full text of a message that will wait for the running turn: it is printed when the turn ends,
        or when the message joins it. `settle_pending` reports when it was stored.
        """
        named = [f"[{Path(picture).name}]" for picture in pictures]
        text = " ".join([shown, *named]).strip()
        if pending is not None:
            self._pending_messages.append(_PendingMessage(pending, text))
        else:
            self.add_blank_line()
            self.add(self._render_user_message(text))
        self._changed = True

    def settle_pending(self, text: str, *, is_stored: bool) -> None:
        """Show a pending message as queued, or forget it if it could not be stored."""
        message = next((one for one in self._pending_messages if one.text == text and not one.is_stored), None)
        if message is not None and is_stored:
            message.is_stored = True
        elif message is not None:
            self._pending_messages.remove(message)
        self._changed = True

    def add_author_message(self, text: str, author: str) -> None:
        """Print a message sent from another surface, with its author if known."""
        self.add_blank_line()
        if author:
            quoted = f"**{escape_markdown(author)}:** {text}".replace("\n", "\n> ")
            self.add(render(f"> {quoted}", self._theme, self._printer.width).rstrip("\n") + "\n")
        else:
            self.add(self._render_user_message(text))

    def show_event(self, event: TurnEvent) -> None:
        """Update the view for an event."""
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
                shown = [one.shown for one in self._pending_messages if one.text == text]
                self._pending_messages = [one for one in self._pending_messages if one.text != text]
                self.add_user_message(shown[0] if shown else text)
            case Noticed(text, lasting):
                self._add_notice(text, lasting=lasting)
            case TurnAnswered() | TurnStopped() | TurnFailed() | TurnOutOfBudget():
                self._end_turn(event)
            case TurnBegan(text=text) if is_report(text):
                self.add_blank_line()
                self.add_dim(REPORT_HEADING)
            case ModelCalled():
                self._end_reply()
            case TurnBegan() | ApprovalAsked() | QuestionAsked() | StoreBlocked():
                pass
            case _:
                assert_never(event)

    def abort(self) -> None:
        """Stop showing the current activity; printed output stays."""
        self._end_reply()
        self.end()

    def unfold(self) -> str:
        """Return and forget the full output of the last tool call; empty if there is none."""
        if not self._done:
            return ""
        last = self._done.pop()
        head = self._style_text(f"{last.summary}\n", self._theme.tool)
        return head + (self._render_diff(last.diff, 0) if last.diff else self._render_block(last.text))

    def redraw_changes(self) -> None:
        """Redraw what has changed since the last call."""
        if not self._changed and self._began is None:
            return
        self._changed = False
        final, self._final = "".join(self._final), []
        live = self._render_live()
        if final:
            self._printer.print(final, live)
        else:
            self._printer.set_live(live)

    def _add_notice(self, text: str, *, lasting: bool) -> None:
        """Print a notice; a permanent one is Markdown, wrapped at words."""
        if not lasting:
            self.add_dim(text)
            return
        self.add_blank_line()
        self.add(f"{render(text, self._theme, self._printer.width).rstrip()}\n\n")

    def _follow_call(self, event: ToolCalled | ToolProgressed | ToolAnswered | ToolRefused) -> None:
        match event:
            case ToolCalled(call=call, summary=summary):
                self._end_reply()
                self._running[call.id] = RunningCall(summary or call.name, time.monotonic())
            case ToolProgressed(call_id=call_id, text=text, step=True) if call_id in self._running:
                self._running[call_id].steps[text.partition(":")[0]] = text
            case ToolProgressed(call_id=call_id, text=text) if call_id in self._running:
                self._running[call_id].printed = text
            case ToolAnswered():
                self._finish_call(event)
            case ToolRefused(summary=summary, reason=reason):
                self._end_reply()
                end = ", refused"
                self.add(self._style_text(self._fit(f"✗ {summary}", end) + "\n", self._theme.error))
                self.add(wrap_text(reason, self._theme.dim, self._printer.width, first="  ", rest="  "))

    def _end_turn(self, end: TurnEnd) -> None:
        self._end_reply()
        match end:
            case TurnStopped():
                self.add_dim("Stopped.")
            case TurnFailed(owner_advice=text) | TurnOutOfBudget(text=text):
                self.add(render_notice(text, self._theme, self._theme.error, self._printer.width))
        self.add_blank_line()
        if self._pending_messages:
            self.add(self._render_user_message(self._pending_messages.pop(0).shown))

    def _render_user_message(self, text: str) -> str:
        first, *rest = text.split("\n")
        if len(rest) > _MAX_MESSAGE_LINES:
            rest = [*rest[:_MAX_MESSAGE_LINES], f"… {len(rest) - _MAX_MESSAGE_LINES} more lines"]
        return wrap_text("\n".join([first, *rest]), self._theme.bold, self._printer.width, first="❯ ", rest="  ")

    def _add_reply(self, text: str) -> None:
        if not self._replying:
            self._end_thought()
            self.add_blank_line()
            self._replying = True
        self.add(self._stream.feed(text))

    def _end_reply(self) -> None:
        self._end_thought()
        if self._replying:
            self.add(self._stream.end())
            self._replying = False
            self.add_blank_line()

    def _add_thought(self, text: str) -> None:
        if not self._display().reasoning:
            return
        *complete, self._thought = (self._thought + text).split("\n")
        self.add("".join(self._style_text(f"{line}\n", self._theme.dim) for line in complete))

    def _end_thought(self) -> None:
        if self._thought:
            self.add(self._style_text(f"{self._thought}\n", self._theme.dim))
            self._thought = ""

    def _finish_call(self, event: ToolAnswered) -> None:
        running = self._running.pop(event.result.call_id, None)
        summary = running.summary if running else event.name
        self._done.append(FinishedCall(summary, event.result.text, event.diff))
        progress = self._display().progress
        if progress == "off" and not event.result.failed:
            return
        mark, style = ("✗", self._theme.error) if event.result.failed else ("✓", self._theme.tool)
        line = self._fit(f"{mark} {summary}", f"{_format_change_counts(event.diff)}  {event.seconds:.1f} s")
        self.add(self._style_text(line + "\n", style))
        if event.diff and event.diff == self._asked_diff:
            self._asked_diff = ""
        elif event.diff:
            self.add(self._render_diff(event.diff, 0 if progress == "verbose" else _DIFF_LINES))
        elif progress == "verbose":
            self.add(self._render_block(event.result.text, _UNFOLDED_LINES))
        elif event.result.failed:
            self.add(self._render_block(event.result.text, 1))
        for file in event.result.files:
            self.add(wrap_text(file.source, self._theme.dim, self._printer.width, first="  ", rest="  "))

    def _render_live(self) -> str:
        """Return the part that is not final: the end of the reply, running calls, the spinner."""
        parts = [self._stream.render_tail()] if self._replying else []
        if self._thought:
            parts.append(self._style_text(self._thought[-self._printer.width :], self._theme.dim))
        now = time.monotonic()
        frame = _FRAMES[int(now / _FRAME_SECONDS) % len(_FRAMES)]
        for running in self._running.values():
            line = self._fit(f"{frame} {running.summary}", f"  {now - running.began:.1f} s")
            parts.append(self._style_text(line, self._theme.tool))
            steps = list(running.steps.values())[-_RUNNING_STEPS:] if self._display().progress != "off" else []
            parts += [self._style_text(self._fit(f"  {step}", ""), self._theme.dim) for step in steps]
            if self._display().progress == "verbose" and running.printed:
                parts.append(self._render_block(running.printed, -_RUNNING_LINES).rstrip("\n"))
        if self._began is not None and not self._running and not self._is_asking():
            doing = "answering" if self._replying else "thinking"
            line = self._fit(f"{frame} {doing} {now - self._began:.0f} s  (Esc stops)", "")
            parts.append(self._style_text(line, self._theme.dim))
        parts += [
            self._style_text(self._fit(f"  queued: {one.shown}", ""), self._theme.dim)
            for one in self._pending_messages
            if one.is_stored
        ]
        lines = "\n".join(part.rstrip("\n") for part in parts if part).split("\n")
        return "\n".join(lines[-max(_MIN_LIVE_ROWS, self._printer.height - _ROWS_BELOW) :])

    def _render_diff(self, diff: str, most: int) -> str:
        return render_diff(diff, self._theme, self._printer.width, most=most)

    def _render_block(self, text: str, most: int = 0) -> str:
        """Return indented output lines; ``most`` limits them to the first or, if negative, the last ones."""
        lines = text.rstrip("\n").split("\n")
        selected = lines[:most] if most > 0 else lines[most:] if most < 0 else lines
        shown = [self._fit(f"  {line}", "") for line in selected]
        if most > 0 and len(lines) > most:
            shown.append(f"  … {len(lines) - most} more lines, Ctrl-O shows them")
        return "".join(self._style_text(f"{line}\n", self._theme.dim) for line in shown)

    def _fit(self, text: str, end: str) -> str:
        escape_markdown = escape_control(text.replace("\n", " ").replace("\t", "    "))
        return cut(escape_markdown, max(self._printer.width - len(end) - 1, 8)) + end

    def _style_text(self, text: str, style: str) -> str:
        if not style:
            return escape_control(text)
        bare = escape_control(text.rstrip("\n"))
        return f"\x1b[{style}m{bare}\x1b[0m" + "\n" * (len(text) - len(text.rstrip("\n")))


def _format_change_counts(diff: str) -> str:
    if not diff:
        return ""
    added, removed = count_changes(diff)
    return f"  +{added} -{removed}"
