"""The input line: editing, history, and what is pasted or attached without filling the screen."""

import asyncio
import re
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import Completer
from prompt_toolkit.filters import Condition, is_searching
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import FileHistory
from prompt_toolkit.layout import HSplit, Window
from prompt_toolkit.layout.controls import BufferControl
from prompt_toolkit.layout.dimension import Dimension
from prompt_toolkit.layout.menus import CompletionsMenu
from prompt_toolkit.layout.processors import AfterInput, ConditionalProcessor
from prompt_toolkit.widgets import SearchToolbar

from talaria.cli.mentions import path_typed, picture, picture_kind
from talaria.core.messages import Image

MARK = "❯ "
_QUIET_SECONDS = 0.5
_MOST_ROWS = 12
_LONG_PASTE_LINES = 8
_LONG_PASTE = 800
_PASTED = re.compile(r"\[pasted #(\d+): [^\]]*\]")


class Typed(Struct, frozen=True):
    """What was sent: ``text`` is all of it, ``shown`` has long pastes folded."""

    text: str
    shown: str
    pictures: tuple[Image, ...] = ()


class InputLine:
    """What the person types. Long pastes are shown as ``[pasted #1: 120 lines]`` and sent whole.

    They are kept for as long as the chat is open, so that a line of the history still has them.
    """

    def __init__(self, history: Path, completer: Completer, hint: Callable[[], str]) -> None:
        self._pasted: dict[int, str] = {}
        self.pictures: tuple[Image, ...] = ()
        self.mark: str | None = None
        self.buffer = Buffer(
            history=FileHistory(str(history)),
            completer=completer,
            complete_while_typing=Condition(self._names_something),
            multiline=True,
        )
        self._changed = asyncio.Event()
        self.buffer.on_text_changed += lambda _buffer: self._changed.set()
        search = SearchToolbar(ignore_case=True)
        empty = Condition(lambda: not self.buffer.text)
        control = BufferControl(
            self.buffer,
            input_processors=[ConditionalProcessor(AfterInput(hint, style="class:hint"), empty & ~is_searching)],
            search_buffer_control=search.control,
            preview_search=True,
        )
        self.window = Window(
            control,
            get_line_prefix=self._prefix,
            wrap_lines=True,
            height=Dimension(min=1, max=_MOST_ROWS),
            dont_extend_height=True,
        )
        self.container = HSplit([self.window, search, CompletionsMenu(max_height=8, scroll_offset=1)])

    async def quiet(self) -> None:
        """Wait until the line has been empty for a moment in which nothing was typed."""
        while True:
            self._changed.clear()
            if self.buffer.text:
                await self._changed.wait()
                continue
            try:
                await asyncio.wait_for(self._changed.wait(), _QUIET_SECONDS)
            except TimeoutError:
                if not self.buffer.text:
                    return

    def paste(self, text: str, folder: Path) -> None:
        """Take what was pasted: the path of a picture attaches it, long text is folded."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        file = path_typed(text, folder) if "\n" not in text.strip() and len(text) < _LONG_PASTE else None
        if file is not None and picture_kind(file) and file.is_file():
            self.attach(picture(file))
            return
        self.buffer.insert_text(self._fold(text))

    def attach(self, image: Image) -> None:
        """Send this picture with the next message."""
        self.pictures += (image,)

    @property
    def text(self) -> str:
        """All that was typed and pasted."""
        return self._unfold(self.buffer.text)

    def take(self) -> Typed:
        """Return what was typed, pastes unfolded, and what is attached; the line is empty then."""
        shown = self.buffer.text
        if shown.strip():
            self.buffer.append_to_history()
        typed = Typed(self.text.strip(), shown.strip(), self.pictures)
        self.pictures = ()
        self.empty()
        return typed

    def empty(self) -> None:
        """Forget what was typed."""
        self.buffer.reset()
        self._changed.set()

    def clear(self) -> None:
        """Empty the line; the history keeps what was typed."""
        if self.buffer.text.strip():
            self.buffer.append_to_history()
        self.empty()

    def fill_in(self, text: str) -> None:
        """Put text into the line, to be edited and sent; long text is folded as a paste is."""
        self.buffer.text = self._fold(text)
        self.buffer.cursor_position = len(self.buffer.text)

    def _fold(self, text: str) -> str:
        """Return the text, or what stands for it in the line where it is long."""
        lines = text.rstrip("\n").count("\n") + 1
        if lines <= _LONG_PASTE_LINES and len(text) <= _LONG_PASTE:
            return text
        number = len(self._pasted) + 1
        self._pasted[number] = text
        size = f"{lines} lines" if lines > 1 else f"{len(text):,} characters"
        return f"[pasted #{number}: {size}]"

    def _unfold(self, text: str) -> str:
        return _PASTED.sub(lambda found: self._pasted.get(int(found[1]), found[0]), text)

    def _prefix(self, number: int, wrapped: int) -> StyleAndTextTuples:
        mark = self.mark or MARK
        return [("class:mark", mark if number == 0 and wrapped == 0 else " " * len(MARK))]

    def _names_something(self) -> bool:
        """Tell whether a command or a file is being typed: only then completions come by themselves."""
        before = self.buffer.document.text_before_cursor
        return before.startswith("/") or before.rpartition(" ")[2].startswith("@")
