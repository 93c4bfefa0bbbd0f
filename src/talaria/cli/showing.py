"""What a person, or a script, sees of a turn."""

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
from talaria.sessions.chat import Chat
from talaria.sessions.waking import is_report

REPORTS = "What runs in the background reports:"
_DIFF_LINES = 40


class Show(Protocol):
    """One way to show a conversation."""

    def opened(self, chat: Chat, notes: Sequence[str] = ()) -> None:
        """Say what the person should know first."""

    def event(self, event: TurnEvent) -> None:
        """Show what happens."""


class EventLines:
    """Implements `Show` for scripts: every event as a line of JSON."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal

    def opened(self, chat: Chat, notes: Sequence[str] = ()) -> None:
        """Print which conversation it is."""
        opened = {"type": "opened", "session": chat.conversation.session_id, "model": chat.model}
        self._print({**opened, "notes": (*notes, *chat.notes)})

    def event(self, event: TurnEvent) -> None:
        """Print the event."""
        self._print(event)

    def _print(self, value: object) -> None:
        self._terminal.document(msgspec.json.encode(value).decode() + "\n")


def diff_lines(diff: str, terminal: Terminal, most: int = _DIFF_LINES) -> Iterator[str]:
    """Yield a diff as lines for people, in colour where the terminal has any; a long one is folded."""
    lines = diff.split("\n")
    for line in lines[:most]:
        style = {"+": "green", "-": "red", "@": "dim"}.get(line[:1])
        text = f"  {line}"
        yield terminal.styled(text, style) if style else text
    if len(lines) > most:
        yield f"  … {len(lines) - most:,} more lines"


class Transcribed:
    """Implements `Show` for people: the reply on stdout, everything else on stderr.

    ``commands`` says whether slash commands can be typed, so that an error may suggest one.
    """

    def __init__(self, terminal: Terminal, *, commands: bool = True) -> None:
        self._terminal = terminal
        self._commands = commands
        self._open_line = False

    def opened(self, chat: Chat, notes: Sequence[str] = ()) -> None:
        """Print the notes."""
        for note in (*notes, *chat.notes):
            self._terminal.note(note)

    def event(self, event: TurnEvent) -> None:
        """Show what happens."""
        match event:
            case TextAdded(text):
                self._terminal.piece(text)
                self._open_line = not text.endswith("\n")
            case ToolCalled() | ToolProgressed() | ToolAnswered() | ToolRefused():
                self._follow_call(event)
            case ApprovalAsked() | QuestionAsked() | ModelCalled():
                self._end_line()
            case Noticed() | TurnFailed() | TurnOutOfBudget():
                self._beside(self._remark(event), "yellow")
            case TurnAnswered() | TurnStopped():
                self._end_line()
            case TurnBegan(said=said) if is_report(said):
                self._beside(REPORTS, "dim")
            case TurnBegan() | ReasoningAdded() | PersonJoined():
                pass
            case _:
                assert_never(event)

    def _follow_call(self, event: ToolCalled | ToolProgressed | ToolAnswered | ToolRefused) -> None:
        match event:
            case ToolCalled(summary=summary):
                self._beside(f"· {summary}", "dim")
            case ToolProgressed(text=text, step=True):
                self._beside(f"·   {text}", "dim")
            case ToolAnswered(result=result, name=name) if result.failed:
                self._beside(f"· {name} failed: {result.text.partition(chr(10))[0]}", "dim")
            case ToolAnswered(diff=diff) if diff:
                self._show_diff(diff)
            case ToolRefused(summary=summary, reason=reason):
                self._beside(f"✗ {summary}, refused: {reason}", "red")

    def _show_diff(self, diff: str) -> None:
        self._end_line()
        for line in diff_lines(diff, self._terminal):
            self._terminal.note(line)

    def _remark(self, event: Noticed | TurnFailed | TurnOutOfBudget) -> str:
        if isinstance(event, TurnFailed):
            return event.owner_advice if self._commands else event.owner_text
        return event.text

    def _beside(self, text: str, style: str) -> None:
        self._end_line()
        self._terminal.note(self._terminal.styled(text, style))

    def _end_line(self) -> None:
        if self._open_line:
            self._terminal.line()
            self._open_line = False
