"""Input line with editing, history, folded pastes and attachments, and completion of commands and files."""

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition, is_searching
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import FileHistory
from prompt_toolkit.layout import HSplit, Window
from prompt_toolkit.layout.controls import BufferControl
from prompt_toolkit.layout.dimension import Dimension
from prompt_toolkit.layout.menus import CompletionsMenu
from prompt_toolkit.layout.processors import AfterInput, ConditionalProcessor
from prompt_toolkit.widgets import SearchToolbar

from talaria.cli.terminal_text import cut
from talaria.core.errors import TalariaError
from talaria.core.mentions import complete_files, guess_picture_type, open_image, parse_typed_path
from talaria.core.messages import Image

PROMPT_MARK = "❯ "
_QUIET_SECONDS = 0.5
_MAX_ROWS = 12
_LONG_PASTE_LINES = 8
_LONG_PASTE = 800
_PASTE_MARKER = re.compile(r"\[pasted #(\d+): [^\]]*\]")
_MAX_COMPLETIONS = 60
_USAGE_COLUMNS = 24  # one long usage must not crowd out all descriptions
CommandEntry = tuple[str, str, str]
ArgumentProvider = Callable[[str, str], Awaitable[Sequence[tuple[str, str]]]]


class TypedInput(Struct, frozen=True):
    """Submitted input: ``text`` is complete, ``shown`` has long pastes folded."""

    text: str
    shown: str
    pictures: tuple[Image, ...] = ()


class InputLine:
    """Editable input line; long pastes are shown as ``[pasted #1: 120 lines]`` and sent completely.

    Pastes are kept while the chat is open, so that lines from the history still have them.
    """

    def __init__(self, history: Path, completer: Completer, hint: Callable[[], str]) -> None:
        self._pasted: dict[int, str] = {}
        self.pictures: tuple[Image, ...] = ()
        self.mark: str | None = None
        self.buffer = Buffer(
            history=FileHistory(str(history)),
            completer=completer,
            complete_while_typing=Condition(self._should_complete),
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
            get_line_prefix=self._get_line_prefix,
            wrap_lines=True,
            height=Dimension(min=1, max=_MAX_ROWS),
            dont_extend_height=True,
        )
        self.container = HSplit([self.window, search, CompletionsMenu(max_height=8, scroll_offset=1)])

    async def wait_until_quiet(self) -> None:
        """Wait until the line has been empty for a moment without typing."""
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
        """Insert pasted text: the path of an image attaches it, long text is folded."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        file = parse_typed_path(text, folder) if "\n" not in text.strip() and len(text) < _LONG_PASTE else None
        if file is not None and guess_picture_type(file) and file.is_file():
            self.attach(open_image(file))
            return
        self.buffer.insert_text(self._fold(text))

    def attach(self, image: Image) -> None:
        """Send this image with the next message."""
        self.pictures += (image,)

    @property
    def text(self) -> str:
        """Complete typed and pasted text."""
        return self._unfold(self.buffer.text)

    def take(self) -> TypedInput:
        """Return and clear the input, with pastes unfolded and attachments."""
        shown = self.buffer.text
        if shown.strip():
            self.buffer.append_to_history()
        typed = TypedInput(self.text.strip(), shown.strip(), self.pictures)
        self.pictures = ()
        self.discard_text()
        return typed

    def discard_text(self) -> None:
        """Discard the typed text."""
        self.buffer.reset()
        self._changed.set()

    def clear(self) -> None:
        """Clear the line; the history keeps the text."""
        if self.buffer.text.strip():
            self.buffer.append_to_history()
        self.discard_text()

    def set_input_text(self, text: str) -> None:
        """Put text into the line, for editing; long text is folded like a paste."""
        self.buffer.text = self._fold(text)
        self.buffer.cursor_position = len(self.buffer.text)

    def _fold(self, text: str) -> str:
        """Return the text, or a placeholder if it is long."""
        lines = text.rstrip("\n").count("\n") + 1
        if lines <= _LONG_PASTE_LINES and len(text) <= _LONG_PASTE:
            return text
        number = len(self._pasted) + 1
        self._pasted[number] = text
        size = f"{lines} lines" if lines > 1 else f"{len(text):,} characters"
        return f"[pasted #{number}: {size}]"

    def _unfold(self, text: str) -> str:
        return _PASTE_MARKER.sub(lambda found: self._pasted.get(int(found[1]), found[0]), text)

    def _get_line_prefix(self, number: int, wrapped: int) -> StyleAndTextTuples:
        mark = self.mark or PROMPT_MARK
        return [("class:mark", mark if number == 0 and wrapped == 0 else " " * len(PROMPT_MARK))]

    def _should_complete(self) -> bool:
        """Return whether a command or file is being typed; only then completions open automatically."""
        before = self.buffer.document.text_before_cursor
        return before.startswith("/") or before.rpartition(" ")[2].startswith("@")


class ChatCompleter(Completer):
    """Completer for the input line.

    ``commands`` returns name, usage and help of each command, ``offers`` the completions of one.
    """

    def __init__(
        self, commands: Callable[[], Sequence[CommandEntry]], offers: ArgumentProvider, folder: Callable[[], Path]
    ) -> None:
        self._commands = commands
        self._offers = offers
        self._folder = folder

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        """Return nothing: completions are asynchronous here."""
        yield from ()

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        """Yield completions for the text before the cursor."""
        before = document.text_before_cursor
        word = before.rpartition(" ")[2].rpartition("\n")[2]
        if word.startswith("@"):
            for completion in self._complete_files(word[1:]):
                yield completion
        elif before.startswith("/") and " " not in before:
            for name, usage, about in self._commands():
                if name.startswith(before[1:]):
                    yield Completion(f"/{name}", -len(before), display=cut(usage, _USAGE_COLUMNS), display_meta=about)
        elif before.startswith("/"):
            async for completion in self._complete_arguments(before):
                yield completion

    async def _complete_arguments(self, before: str) -> AsyncGenerator[Completion, None]:
        name, _, arguments = before.partition(" ")
        try:
            choices = await self._offers(name, arguments)
        except TalariaError:
            return
        prefix = arguments.lower()
        matches = [(text, about) for text, about in choices if prefix in text.lower()]
        for text, about in sorted(matches, key=lambda one: not one[0].lower().startswith(prefix))[:_MAX_COMPLETIONS]:
            yield Completion(text, -len(arguments), display_meta=about)

    def _complete_files(self, typed: str) -> Iterator[Completion]:
        for path in complete_files(typed, self._folder()):
            name = path.rstrip("/").rpartition("/")[2] + ("/" if path.endswith("/") else "")
            yield Completion(f'@"{path}"' if " " in path else f"@{path}", -len(typed) - 1, display=name)
