"""The part of the chat that is up at once: input line, keys, menus and status bar, before anything else is loaded."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Literal, Protocol, TextIO

from prompt_toolkit.application import in_terminal
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import ConditionalContainer, Window
from prompt_toolkit.layout.controls import FormattedTextControl
from prompt_toolkit.styles import DynamicStyle

from talaria.cli.live.canvas import Canvas
from talaria.cli.live.choices import ChoiceMenu
from talaria.cli.live.completing import ChatCompleter, Named
from talaria.cli.live.line import MARK, InputLine
from talaria.cli.live.styles import style_for
from talaria.core.messages import Image

_HINT = "Ask anything, / for commands, @ for files, ! for the shell"
_ANSWER = "answer ❯ "


class Behind(Protocol):
    """Whoever acts on what the person does; there from the moment that everything is loaded."""

    def submit(self, text: str, pictures: list[Image]) -> None:
        """Take a line that was sent."""

    def interrupt(self) -> None:
        """React to Ctrl-C."""

    def unfold(self) -> None:
        """Show more of what tools do."""

    def paste(self) -> None:
        """Take what the clipboard holds."""

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
        self.early: list[tuple[str, list[Image]]] = []
        self.choices = ChoiceMenu(self._move_focus)
        self._behind: Behind | None = None
        self._answer: asyncio.Future[str] | None = None
        completer = ChatCompleter(self._commands, self._offers, lambda: self.folder)
        self.line = InputLine(history, completer, lambda: "" if self._answer else _HINT)
        status = Window(FormattedTextControl(lambda: self.status), height=1, dont_extend_height=True)
        typing = ConditionalContainer(self.line.container, Condition(lambda: not self.choices.active))
        below = [typing, self.choices.container, self._attached(), status]
        self.canvas = Canvas(stdout, term, below, self._keys(), DynamicStyle(lambda: style_for(self.theme)))
        self.canvas.app.layout.focus(self.line.window)

    def attach_behind(self, behind: Behind) -> None:
        """Hand over to whoever acts, and give them what was sent before they were there."""
        self._behind = behind
        early, self.early = self.early, []
        for text, pictures in early:
            behind.submit(text, pictures)

    async def choose(self, question: str, choices: Sequence[str]) -> int | None:
        """Let the person choose under the cursor."""
        return await self.choices.ask(question, choices)

    async def ask(self) -> str:
        """Return the next line, typed as the answer to a question."""
        self._answer = asyncio.get_running_loop().create_future()
        self.line.mark = _ANSWER
        self.canvas.app.invalidate()
        try:
            return await self._answer
        finally:
            self._answer = None
            self.line.mark = MARK
            self.canvas.app.invalidate()

    async def lend(self, use: Callable[[], Awaitable[None]]) -> None:
        """Leave the terminal to another program."""
        with self.canvas.lent():
            async with in_terminal():
                await use()
        self.canvas.show_held_back()

    def leave(self, code: int = 0) -> None:
        """End the chat."""
        if self.canvas.app.is_running and not self.canvas.app.is_done:
            self.canvas.app.exit(result=code)

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
        text, pictures = self.line.take()
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(text)
        elif not text and not pictures:
            return
        elif self._behind is None:
            self.early.append((text, pictures))
        else:
            self._behind.submit(text, pictures)

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()
        buffer = self.line.buffer
        typing = Condition(lambda: not self.choices.active)
        empty = Condition(lambda: not buffer.text)
        goes_on = Condition(lambda: buffer.document.is_cursor_at_the_end and buffer.text.endswith("\\"))
        keys.add("enter", filter=typing & ~goes_on)(self._enter)
        keys.add("enter", filter=typing & goes_on)(self._replace_backslash)
        for chord in (("escape", "enter"), ("c-j",)):
            keys.add(*chord, filter=typing)(lambda _event: buffer.newline(copy_margin=False))
        keys.add("c-c", filter=typing)(lambda _event: self._act("interrupt"))
        keys.add("c-d", filter=typing & empty)(lambda _event: self.leave())
        keys.add("c-o")(lambda _event: self._act("unfold"))
        keys.add("c-v", filter=typing)(lambda _event: self._act("paste"))
        keys.add("c-l")(lambda event: event.app.renderer.clear())
        keys.add("c-z")(lambda event: event.app.suspend_to_background())
        keys.add(Keys.BracketedPaste, filter=typing)(lambda event: self.line.paste(event.data, self.folder))
        return keys

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

    def _act(self, what: Literal["interrupt", "unfold", "paste"]) -> None:
        match self._behind, what:
            case None, "interrupt":
                self.leave()
            case None, _:
                pass
            case behind, "interrupt":
                behind.interrupt()
            case behind, "unfold":
                behind.unfold()
            case behind, "paste":
                behind.paste()
