"""The input line: editing, history, and what is pasted or attached without filling the screen."""

import re
from collections.abc import Callable
from pathlib import Path

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import Completer
from prompt_toolkit.filters import Condition
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
_MOST_ROWS = 12
_LONG_PASTE_LINES = 8
_LONG_PASTE = 800
_PASTED = re.compile(r"\[pasted #(\d+): [^\]]*\]")


class InputLine:
    """What the person types. Long pastes are shown as ``[pasted #1: 120 lines]`` and sent whole."""

    def __init__(self, history: Path, completer: Completer, hint: Callable[[], str]) -> None:
        self._pasted: dict[int, str] = {}
        self.pictures: list[Image] = []
        self.mark = MARK
        self.buffer = Buffer(
            history=FileHistory(str(history)),
            completer=completer,
            complete_while_typing=Condition(self._names_something),
            multiline=True,
        )
        search = SearchToolbar(ignore_case=True)
        empty = Condition(lambda: not self.buffer.text)
        control = BufferControl(
            self.buffer,
            input_processors=[ConditionalProcessor(AfterInput(hint, style="class:hint"), empty)],
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

    def paste(self, text: str, folder: Path) -> None:
        """Take what was pasted: the path of a picture attaches it, long text is folded."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        file = path_typed(text, folder) if "\n" not in text.strip() and len(text) < _LONG_PASTE else None
        if file is not None and picture_kind(file) and file.is_file():
            self.attach(picture(file))
            return
        lines = text.count("\n") + 1
        if lines <= _LONG_PASTE_LINES and len(text) <= _LONG_PASTE:
            self.buffer.insert_text(text)
            return
        number = len(self._pasted) + 1
        self._pasted[number] = text
        size = f"{lines} lines" if lines > 1 else f"{len(text):,} characters"
        self.buffer.insert_text(f"[pasted #{number}: {size}]")

    def attach(self, image: Image) -> None:
        """Send this picture with the next message."""
        self.pictures.append(image)

    def take(self) -> tuple[str, list[Image]]:
        """Return what was typed, pastes unfolded, and what is attached; the line is empty then."""
        typed = self.buffer.text
        if typed.strip():
            self.buffer.append_to_history()
        text = _PASTED.sub(lambda found: self._pasted.get(int(found[1]), found[0]), typed)
        pictures, self.pictures, self._pasted = self.pictures, [], {}
        self.buffer.reset()
        return text.strip(), pictures

    def fill_in(self, text: str) -> None:
        """Put text into the line, to be edited and sent."""
        self.buffer.text = text
        self.buffer.cursor_position = len(text)

    def _prefix(self, number: int, wrapped: int) -> StyleAndTextTuples:
        return [("class:mark", self.mark if number == 0 and wrapped == 0 else " " * len(self.mark))]

    def _names_something(self) -> bool:
        """Tell whether a command or a file is being typed: only then completions come by themselves."""
        before = self.buffer.document.text_before_cursor
        return before.startswith("/") or before.rpartition(" ")[2].startswith("@")
