"""Output of turn events, as text for people or JSON for scripts."""

from collections.abc import Iterator, Sequence
from typing import Protocol, assert_never

import msgspec

from talaria.cli.terminal import Terminal
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
from talaria.runtime.completions import is_report
from talaria.runtime.open_session import OpenSession

REPORT_HEADING = "Background report:"
_DIFF_LINES = 40


class EventPrinter(Protocol):
    """Output format for a session."""

    def print_opening(self, chat: OpenSession, notes: Sequence[str] = ()) -> None:
        """Show notices for the user at the start."""

    def print_event(self, event: TurnEvent) -> None:
        """Show an event."""


class JsonPrinter:
    """`EventPrinter` for scripts: each event as a line of JSON."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal

    def print_opening(self, chat: OpenSession, notes: Sequence[str] = ()) -> None:
        """Print the session."""
        opened = {"type": "opened", "session": chat.conversation.session_id, "model": chat.model}
        self._print({**opened, "notes": (*notes, *chat.notes)})

    def print_event(self, event: TurnEvent) -> None:
        """Print the event."""
        self._print(event)

    def _print(self, value: object) -> None:
        self._terminal.document(msgspec.json.encode(value).decode() + "\n")


def format_diff_lines(diff: str, terminal: Terminal, limit: int = _DIFF_LINES, *, indent: str = "  ") -> Iterator[str]:
    """Yield the lines of a diff, in colour if the terminal supports it; long diffs are folded."""
    lines = diff.split("\n")
    for line in lines[:limit]:
        style = {"+": "green", "-": "red", "@": "dim"}.get(line[:1])
        text = f"{indent}{line}"
        yield terminal.style(text, style) if style else text
    if len(lines) > limit:
        yield f"  … {len(lines) - limit:,} more lines"


class TextPrinter:
    """`EventPrinter` for people: the reply on stdout, everything else on stderr.

    ``commands`` is true if slash commands can be typed, so that an error may suggest one.
    """

    def __init__(self, terminal: Terminal, *, commands: bool = True) -> None:
        self._terminal = terminal
        self._commands = commands
        self._open_line = False

    def print_opening(self, chat: OpenSession, notes: Sequence[str] = ()) -> None:
        """Print the notes."""
        for note in (*notes, *chat.notes):
            self._terminal.note(note)

    def print_event(self, event: TurnEvent) -> None:
        """Show an event."""
        match event:
            case TextAdded(text):
                self._terminal.piece(text)
                self._open_line = not text.endswith("\n")
            case ToolCalled() | ToolProgressed() | ToolAnswered() | ToolRefused():
                self._follow_call(event)
            case ApprovalAsked() | QuestionAsked() | ModelCalled():
                self._end_line()
            case Noticed() | TurnFailed() | TurnOutOfBudget():
                self._print_note(self._format_notice(event), "yellow")
            case TurnAnswered() | TurnStopped():
                self._end_line()
            case TurnBegan(text=text) if is_report(text):
                self._print_note(REPORT_HEADING, "dim")
            case TurnBegan() | ReasoningAdded() | PersonJoined() | StoreBlocked():
                pass
            case _:
                assert_never(event)

    def _follow_call(self, event: ToolCalled | ToolProgressed | ToolAnswered | ToolRefused) -> None:
        match event:
            case ToolCalled(summary=summary):
                self._print_note(f"· {summary}", "dim")
            case ToolProgressed(text=text, step=True):
                self._print_note(f"·   {text}", "dim")
            case ToolAnswered(result=result, name=name) if result.failed:
                self._print_note(f"· {name} failed: {result.text.partition(chr(10))[0]}", "dim")
            case ToolAnswered(diff=diff) if diff:
                self._show_diff(diff)
            case ToolAnswered(result=result) if result.files:
                for file in result.files:
                    self._print_note(f"·   {file.source}", "dim")
            case ToolRefused(summary=summary, reason=reason):
                self._print_note(f"✗ {summary}, refused: {reason}", "red")

    def _show_diff(self, diff: str) -> None:
        self._end_line()
        for line in format_diff_lines(diff, self._terminal):
            self._terminal.note(line)

    def _format_notice(self, event: Noticed | TurnFailed | TurnOutOfBudget) -> str:
        if isinstance(event, TurnFailed):
            return event.owner_advice if self._commands else event.owner_text
        return event.text

    def _print_note(self, text: str, style: str) -> None:
        self._end_line()
        self._terminal.note(self._terminal.style(text, style))

    def _end_line(self) -> None:
        if self._open_line:
            self._terminal.line()
            self._open_line = False
