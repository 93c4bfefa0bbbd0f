"""The part of the chat that is up at once: input line, keys, menus and status bar, before anything else is loaded."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
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
from prompt_toolkit.styles import DynamicStyle

from talaria.cli.live.approval import ApprovalPrompt
from talaria.cli.live.canvas import Canvas
from talaria.cli.live.choices import ChoiceMenu
from talaria.cli.live.completing import ChatCompleter, Named
from talaria.cli.live.line import InputLine, Typed
from talaria.cli.live.styles import style_for

_HINT = "Ask anything, / for commands, @ for files, ! for the shell, ? for keys"
_SHORT_HINT = "Ask anything"
_ANSWER = "answer ❯ "
_LEAVE = "  Press Ctrl-C again to leave."
_QUESTION_WAITS = "  A question is waiting: send or clear your draft to see it."
_ESCAPE_SECONDS = 0.2


class Behind(Protocol):
    """Whoever acts on what the person does; there from the moment that everything is loaded."""

    def submit(self, typed: Typed) -> None:
        """Take a line that was sent."""

    def interrupt(self) -> None:
        """React to Ctrl-C."""

    def escape(self) -> None:
        """React to Esc where no menu, search or question is open."""

    def unfold(self) -> None:
        """Show more of what tools do."""

    def paste(self) -> None:
        """Take what the clipboard holds."""

    def edit(self) -> None:
        """Open what was typed in the person's editor."""

    def commands(self) -> Sequence[Named]:
        """Return name, usage and help of each command."""

    def offers(self, name: str, words: str) -> Awaitable[Sequence[tuple[str, str]]]:
        """Return what may follow a command."""


class Front:
    """Everything the person touches."""

    def __init__(self, stdout: TextIO, term: str, history: Path, theme: str) -> None:
        self.theme = theme
        self.folder = Path.cwd()
        self.status: StyleAndTextTuples = [("class:status", " starting …")]
        self.early: list[Typed] = []
        self.choices = ChoiceMenu(self._move_focus)
        self._behind: Behind | None = None
        self._answer: asyncio.Future[str] | None = None
        self._usual_hint = _HINT
        self._presses = 0
        self._pressed_at = time.monotonic()
        self._question_waits = False
        self._leave_offered_at: int | None = None
        completer = ChatCompleter(self._commands, self._offers, lambda: self.folder)
        self.line = InputLine(history, completer, self._hint)
        self.approval = ApprovalPrompt(self.line, lambda: self.canvas.width, self._redraw)
        status = Window(FormattedTextControl(self._status), height=1, dont_extend_height=True)
        typing = ConditionalContainer(self.line.container, Condition(lambda: not self.choices.active))
        below = [self.approval.container, typing, self.choices.container, self._attached(), status]
        self.canvas = Canvas(stdout, term, below, self._keys(), DynamicStyle(lambda: style_for(self.theme)))
        app = self.canvas.app
        app.layout.focus(self.line.window)
        # How long a lone Esc waits for more: Alt-Enter and the arrow keys begin with the same character.
        app.timeoutlen = app.ttimeoutlen = _ESCAPE_SECONDS
        app.key_processor.before_key_press += lambda _processor: self._count_press()

    @property
    def asking(self) -> bool:
        """Whether the person is being asked something."""
        return self.choices.active or self.approval.is_open or self._answer is not None

    @property
    def idle_seconds(self) -> float:
        """How long ago the last key was pressed."""
        return time.monotonic() - self._pressed_at

    @property
    def leave_confirmed(self) -> bool:
        """Whether the key before this one offered to leave."""
        return self._leave_offered_at is not None and self._presses == self._leave_offered_at + 1

    def offer_leave(self) -> None:
        """Say that the same key once more leaves; any other key takes that back."""
        self._leave_offered_at = self._presses
        self.canvas.app.invalidate()

    def attach_behind(self, behind: Behind, hint: str = _HINT) -> None:
        """Hand over to whoever acts, and give them what was sent before they were there.

        ``hint`` says in the empty line what can be typed.
        """
        self._behind, self._usual_hint = behind, hint
        early, self.early = self.early, []
        for typed in early:
            behind.submit(typed)

    async def choose(self, question: StyleAndTextTuples, choices: Sequence[str]) -> int | None:
        """Let the person choose under the cursor."""
        return await self.choices.ask(question, choices)

    async def wait_for_quiet(self) -> None:
        """Wait until the person is not typing: a menu takes all keys."""
        self._question_waits = True
        try:
            await self.line.quiet()
        finally:
            self._question_waits = False

    async def ask(self) -> str:
        """Return the next line, typed as the answer to a question."""
        self._answer = asyncio.get_running_loop().create_future()
        self.line.mark = _ANSWER
        self.canvas.app.invalidate()
        try:
            return await self._answer
        finally:
            self._answer = None
            self.line.mark = None
            self.canvas.app.invalidate()

    async def lend(self, use: Callable[[], Awaitable[None]]) -> None:
        """Leave the terminal to another program."""
        with self.canvas.lent():
            async with in_terminal():
                self.canvas.flush()
                await use()
                self.canvas.end_foreign_line()
        self.canvas.show_held_back()

    def leave(self, code: int = 0) -> None:
        """End the chat."""
        if self.canvas.app.is_running and not self.canvas.app.is_done:
            self.canvas.app.exit(result=code)

    def _redraw(self) -> None:
        self.canvas.app.invalidate()

    def _count_press(self) -> None:
        self._presses += 1
        self._pressed_at = time.monotonic()

    def _hint(self) -> str:
        if self.asking:
            return ""
        return self._usual_hint if self.canvas.width > len(self._usual_hint) + 2 else _SHORT_HINT

    def _status(self) -> StyleAndTextTuples:
        if self._presses == self._leave_offered_at:
            return [("class:status.warning", _LEAVE)]
        if self._question_waits and self.line.buffer.text:
            return [("class:status.warning", _QUESTION_WAITS)]
        return self.status

    def _move_focus(self) -> None:
        self.canvas.app.layout.focus(self.choices.window if self.choices.active else self.line.window)
        self.canvas.app.invalidate()

    def _attached(self) -> ConditionalContainer:
        def names() -> StyleAndTextTuples:
            names = ", ".join(Path(image.source).name for image in self.line.pictures)
            return [("class:hint", f"  with {names}")]

        shown = Window(FormattedTextControl(names), height=1, dont_extend_height=True)
        return ConditionalContainer(shown, Condition(lambda: bool(self.line.pictures)))

    def _commands(self) -> Sequence[Named]:
        return self._behind.commands() if self._behind else ()

    async def _offers(self, name: str, words: str) -> Sequence[tuple[str, str]]:
        return await self._behind.offers(name, words) if self._behind else ()

    def _send(self) -> None:
        if self.approval.take():
            return
        typed = self.line.take()
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(typed.text)
        elif not typed.text and not typed.pictures:
            return
        elif self._behind is None:
            self.early.append(typed)
        else:
            self._behind.submit(typed)

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()
        buffer = self.line.buffer
        typing = Condition(lambda: not self.choices.active) & ~is_searching
        empty = Condition(lambda: not buffer.text)
        goes_on = Condition(lambda: buffer.document.is_cursor_at_the_end and buffer.text.endswith("\\"))
        keys.add("enter", filter=typing & ~goes_on)(self._enter)
        keys.add("enter", filter=typing & goes_on)(self._replace_backslash)
        for chord in (("escape", "enter"), ("c-j",)):
            keys.add(*chord, filter=typing)(lambda _event: buffer.newline(copy_margin=False))
        keys.add("c-c", filter=typing)(lambda _event: self._act("interrupt"))
        keys.add("escape", filter=typing)(lambda _event: self._escape())
        keys.add("c-d", filter=typing & empty)(lambda _event: self.leave())
        keys.add("c-o")(lambda _event: self._act("unfold"))
        keys.add("c-v", filter=typing)(lambda _event: self._act("paste"))
        keys.add("c-x", "c-e", filter=typing)(lambda _event: self._act("edit"))
        keys.add("c-l")(lambda event: event.app.renderer.clear())
        keys.add("c-z")(lambda event: event.app.suspend_to_background())
        keys.add(Keys.BracketedPaste, filter=typing)(lambda event: self.line.paste(event.data, self.folder))
        for key in ("enter", "tab", "right", "c-e", "end"):
            keys.add(key, filter=is_searching)(lambda _event: self._take_match())
        return keys

    def _take_match(self) -> None:
        """End the search in the history, with what was found in the line."""
        accept_search()
        self.line.buffer.cursor_position = len(self.line.buffer.text)

    def _escape(self) -> None:
        """Close the completions, else react to the question, else leave it to whoever acts."""
        if self.line.buffer.complete_state:
            self.line.buffer.cancel_completion()
        elif self.approval.is_open:
            self.approval.escape()
        else:
            self._act("escape")

    def _enter(self, _event: KeyPressEvent) -> None:
        """Take the completion that is marked, or send the line."""
        completing = self.line.buffer.complete_state
        if completing and completing.current_completion:
            self.line.buffer.complete_state = None
        else:
            self._send()

    def _replace_backslash(self, _event: KeyPressEvent) -> None:
        self.line.buffer.delete_before_cursor()
        self.line.buffer.newline(copy_margin=False)

    def _act(self, what: Literal["interrupt", "escape", "unfold", "paste", "edit"]) -> None:
        match self._behind, what:
            case None, "interrupt":
                self.leave()
            case None, _:
                pass
            case behind, "interrupt":
                behind.interrupt()
            case behind, "escape":
                behind.escape()
            case behind, "unfold":
                behind.unfold()
            case behind, "paste":
                behind.paste()
            case behind, "edit":
                behind.edit()
