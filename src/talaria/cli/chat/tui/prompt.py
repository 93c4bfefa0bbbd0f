"""Prompt of the chat: input line, keys, menus, questions, status bar and colours.

Imported before the rest of the chat, so it must stay light.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol, TextIO

from prompt_toolkit.application import in_terminal
from prompt_toolkit.filters import Condition, is_searching
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import ConditionalContainer, Window
from prompt_toolkit.layout.controls import FormattedTextControl
from prompt_toolkit.search import accept_search
from prompt_toolkit.styles import BaseStyle, DynamicStyle, Style

from talaria.cli.chat.tui.canvas import Canvas
from talaria.cli.chat.tui.input_line import ChatCompleter, CommandEntry, InputLine, TypedInput
from talaria.cli.chat.tui.questions import ApprovalPrompt, ChoiceMenu

_DARK = {
    "mark": "bold ansicyan",
    "hint": "ansibrightblack",
    "status": "ansibrightblack",
    "status.title": "ansiwhite",
    "status.warning": "ansiyellow",
    "question": "bold",
    "chosen": "bold ansicyan",
    "choice": "",
    "completion-menu": "bg:#262626 #d0d0d0",
    "completion-menu.completion.current": "bg:#005f87 #ffffff",
    "completion-menu.meta.completion": "bg:#303030 #a8a8a8",
    "completion-menu.meta.completion.current": "bg:#005f87 #e4e4e4",
    "scrollbar.background": "bg:#303030",
    "scrollbar.button": "bg:#585858",
}
_LIGHT = {
    **_DARK,
    "mark": "bold ansiblue",
    "hint": "#6c6c6c",
    "status": "#5f5f5f",
    "status.title": "#1c1c1c",
    "status.warning": "#875f00",
    "chosen": "bold ansiblue",
    "completion-menu": "bg:#e4e4e4 #1c1c1c",
    "completion-menu.completion.current": "bg:#afd7ff #000000",
    "completion-menu.meta.completion": "bg:#dadada #4e4e4e",
    "completion-menu.meta.completion.current": "bg:#afd7ff #262626",
}
_MONO = {
    "mark": "bold",
    "question": "bold",
    "chosen": "bold",
    "completion-menu": "noreverse",
    "completion-menu.completion.current": "reverse",
}
_STYLES: Mapping[str, BaseStyle] = {
    "dark": Style.from_dict(_DARK),
    "light": Style.from_dict(_LIGHT),
    "mono": Style.from_dict(_MONO),
}
_HINT = "Ask anything, / for commands, @ for files, ! for the shell, ? for keys"
_SHORT_HINT = "Ask anything"
_ANSWER_MARK = "answer ❯ "
_LEAVE_HINT = "  Press Ctrl-C again to leave."
_QUESTION_PENDING = "  A question is waiting: send or clear your draft to see it."
_ESCAPE_SECONDS = 0.2


class PromptHandler(Protocol):
    """Handler of user input, attached once everything is loaded."""

    def submit(self, typed: TypedInput) -> None:
        """Handle a submitted line."""

    def interrupt(self) -> None:
        """Handle Ctrl-C."""

    def escape(self) -> None:
        """Handle Esc while no menu, search or question is open."""

    def unfold(self) -> None:
        """Show more details of tool calls."""

    def paste(self) -> None:
        """Insert the content of the clipboard."""

    def edit(self) -> None:
        """Open the input in the user's editor."""

    def commands(self) -> Sequence[CommandEntry]:
        """Return name, usage and help of each command."""

    def list_completions(self, name: str, arguments: str) -> Awaitable[Sequence[tuple[str, str]]]:
        """Return the completions of a command."""


class PromptScreen:
    """Interactive part of the screen."""

    def __init__(self, stdout: TextIO, term: str, history: Path, theme: str) -> None:
        self.theme = theme
        self.folder = Path.cwd()
        self.status: StyleAndTextTuples = [("class:status", " starting …")]
        self.early_input: list[TypedInput] = []
        self.choices = ChoiceMenu(self._move_focus, lambda text: self.line.paste(text, self.folder))
        self._handler: PromptHandler | None = None
        self._answer: asyncio.Future[str] | None = None
        self._default_hint = _HINT
        self._presses = 0
        self._pressed_at = time.monotonic()
        self._has_pending_question = False
        self._leave_offered_at: int | None = None
        completer = ChatCompleter(self._list_commands, self._offer_arguments, lambda: self.folder)
        self.line = InputLine(history, completer, self._choose_hint)
        self.approval = ApprovalPrompt(self.line, lambda: self.canvas.width, self._redraw)
        status = Window(FormattedTextControl(self._build_status), height=1, dont_extend_height=True)
        typing = ConditionalContainer(self.line.container, Condition(lambda: not self.choices.is_active))
        below = [self.approval.container, typing, self.choices.container, self._build_attachments(), status]
        self.canvas = Canvas(stdout, term, below, self._build_keys(), DynamicStyle(lambda: build_style(self.theme)))
        app = self.canvas.app
        app.layout.focus(self.line.window)
        # How long to wait after Esc: Alt-Enter and the arrow keys start with the same character.
        app.timeoutlen = app.ttimeoutlen = _ESCAPE_SECONDS
        app.key_processor.before_key_press += lambda _processor: self._count_press()

    @property
    def is_asking(self) -> bool:
        """Return whether a question to the user is open."""
        return self.choices.is_active or self.approval.is_open or self._answer is not None

    @property
    def idle_seconds(self) -> float:
        """Seconds since the last key press."""
        return time.monotonic() - self._pressed_at

    @property
    def leave_confirmed(self) -> bool:
        """Return whether the previous key offered to leave."""
        return self._leave_offered_at is not None and self._presses == self._leave_offered_at + 1

    def offer_leave(self) -> None:
        """Show that the same key again leaves; any other key cancels the offer."""
        self._leave_offered_at = self._presses
        self.canvas.app.invalidate()

    def attach_handler(self, handler: PromptHandler, hint: str = _HINT) -> None:
        """Attach the handler and pass it the lines submitted so far.

        ``hint`` is shown in the empty line.
        """
        self._handler, self._default_hint = handler, hint
        early_input, self.early_input = self.early_input, []
        for typed in early_input:
            handler.submit(typed)

    async def choose(self, question: StyleAndTextTuples, choices: Sequence[str]) -> int | None:
        """Ask the user to choose from a menu."""
        return await self.choices.ask(question, choices)

    async def wait_for_quiet(self) -> None:
        """Wait until the user is not typing, because a menu takes all keys."""
        self._has_pending_question = True
        try:
            await self.line.wait_until_quiet()
        finally:
            self._has_pending_question = False

    async def ask(self) -> str:
        """Return the next line as the answer to a question."""
        self._answer = asyncio.get_running_loop().create_future()
        self.line.mark = _ANSWER_MARK
        self.canvas.app.invalidate()
        try:
            return await self._answer
        finally:
            self._answer = None
            self.line.mark = None
            self.canvas.app.invalidate()

    async def run_in_foreground(self, callback: Callable[[], Awaitable[None]]) -> None:
        """Release the terminal to another program."""
        with self.canvas.suspended():
            async with in_terminal():
                self.canvas.flush()
                await callback()
                self.canvas.end_foreign_line()
        self.canvas.print_pending()

    def leave(self, code: int = 0) -> None:
        """End the chat."""
        if self.canvas.app.is_running and not self.canvas.app.is_done:
            self.canvas.app.exit(result=code)

    def _redraw(self) -> None:
        self.canvas.app.invalidate()

    def _count_press(self) -> None:
        self._presses += 1
        self._pressed_at = time.monotonic()

    def _choose_hint(self) -> str:
        if self.is_asking:
            return ""
        return self._default_hint if self.canvas.width > len(self._default_hint) + 2 else _SHORT_HINT

    def _build_status(self) -> StyleAndTextTuples:
        if self._presses == self._leave_offered_at:
            return [("class:status.warning", _LEAVE_HINT)]
        if self._has_pending_question and self.line.buffer.text:
            return [("class:status.warning", _QUESTION_PENDING)]
        return self.status

    def _move_focus(self) -> None:
        self.canvas.app.layout.focus(self.choices.window if self.choices.is_active else self.line.window)
        self.canvas.app.invalidate()

    def _build_attachments(self) -> ConditionalContainer:
        def render_names() -> StyleAndTextTuples:
            names = ", ".join(Path(image.source).name for image in self.line.pictures)
            return [("class:hint", f"  with {names}")]

        shown = Window(FormattedTextControl(render_names), height=1, dont_extend_height=True)
        return ConditionalContainer(shown, Condition(lambda: bool(self.line.pictures)))

    def _list_commands(self) -> Sequence[CommandEntry]:
        return self._handler.commands() if self._handler else ()

    async def _offer_arguments(self, name: str, arguments: str) -> Sequence[tuple[str, str]]:
        return await self._handler.list_completions(name, arguments) if self._handler else ()

    def _send(self) -> None:
        if self.approval.take():
            return
        typed = self.line.take()
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(typed.text)
        elif not typed.text and not typed.pictures:
            return
        elif self._handler is None:
            self.early_input.append(typed)
        else:
            self._handler.submit(typed)

    def _build_keys(self) -> KeyBindings:
        keys = KeyBindings()
        buffer = self.line.buffer
        typing = Condition(lambda: not self.choices.is_active) & ~is_searching
        empty = Condition(lambda: not buffer.text)
        continues_line = Condition(lambda: buffer.document.is_cursor_at_the_end and buffer.text.endswith("\\"))
        keys.add("enter", filter=typing & ~continues_line)(self._enter)
        keys.add("enter", filter=typing & continues_line)(self._replace_backslash)
        for chord in (("escape", "enter"), ("c-j",)):
            keys.add(*chord, filter=typing)(lambda _event: buffer.newline(copy_margin=False))
        keys.add("c-c", filter=typing)(lambda _event: self._handle_key("interrupt"))
        keys.add("escape", filter=typing)(lambda _event: self._escape())
        keys.add("c-d", filter=typing & empty)(lambda _event: self.leave())
        keys.add("c-o")(lambda _event: self._handle_key("unfold"))
        keys.add("c-v", filter=typing)(lambda _event: self._handle_key("paste"))
        keys.add("c-x", "c-e", filter=typing)(lambda _event: self._handle_key("edit"))
        keys.add("c-l")(lambda event: event.app.renderer.clear())
        keys.add("c-z")(lambda event: event.app.suspend_to_background())
        keys.add(Keys.BracketedPaste, filter=typing)(lambda event: self.line.paste(event.data, self.folder))
        for key in ("enter", "tab", "right", "c-e", "end"):
            keys.add(key, filter=is_searching)(lambda _event: self._accept_match())
        return keys

    def _accept_match(self) -> None:
        """End the history search and keep the match in the line."""
        accept_search()
        self.line.buffer.cursor_position = len(self.line.buffer.text)

    def _escape(self) -> None:
        """Close the completions, otherwise pass Esc to the question or to the handler."""
        if self.line.buffer.complete_state:
            self.line.buffer.cancel_completion()
        elif self.approval.is_open:
            self.approval.escape()
        else:
            self._handle_key("escape")

    def _enter(self, _event: KeyPressEvent) -> None:
        """Accept the selected completion, or submit the line."""
        completing = self.line.buffer.complete_state
        if completing and completing.current_completion:
            self.line.buffer.complete_state = None
        else:
            self._send()

    def _replace_backslash(self, _event: KeyPressEvent) -> None:
        self.line.buffer.delete_before_cursor()
        self.line.buffer.newline(copy_margin=False)

    def _handle_key(self, action: Literal["interrupt", "escape", "unfold", "paste", "edit"]) -> None:
        match self._handler, action:
            case None, "interrupt":
                self.leave()
            case None, _:
                pass
            case handler, "interrupt":
                handler.interrupt()
            case handler, "escape":
                handler.escape()
            case handler, "unfold":
                handler.unfold()
            case handler, "paste":
                handler.paste()
            case handler, "edit":
                handler.edit()


def build_style(theme: str) -> BaseStyle:
    """Return the styles of a theme."""
    return _STYLES[theme]


def resolve_theme(configured: str, environment: Mapping[str, str]) -> str:
    """Return the requested theme, or one that fits the terminal's colours and background; default dark."""
    if environment.get("NO_COLOR"):
        return "mono"
    if configured in _STYLES:
        return configured
    term = environment.get("TERM", "")
    if term.startswith("vt") or term.endswith(("-m", "-mono")):
        return "mono"
    background = environment.get("COLORFGBG", "").rpartition(";")[2]
    return "light" if background in {"7", "15"} else "dark"
