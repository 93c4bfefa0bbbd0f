"""Screen of the chat: final text scrolls up, the live part is redrawn below it."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

from prompt_toolkit.application import Application
from prompt_toolkit.data_structures import Size
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import ANSI, StyleAndTextTuples, to_formatted_text
from prompt_toolkit.key_binding import KeyBindingsBase
from prompt_toolkit.layout import ConditionalContainer, HSplit, Layout, Window
from prompt_toolkit.layout.containers import AnyContainer
from prompt_toolkit.layout.controls import FormattedTextControl
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.styles import BaseStyle

from talaria.cli.terminal_text import format_cell

_FALLBACK_SIZE = Size(rows=24, columns=80)


class BufferedOutput(Vt100_Output):
    """Terminal output that can be held back, so that a screen update is one write."""

    def __init__(self, stdout: TextIO, term: str) -> None:
        # Cursor position requests (CPR) are not needed, and some terminals never answer them.
        super().__init__(stdout, lambda: _get_size(stdout), term=term, enable_cpr=False)
        self._holding = False

    def hold(self) -> None:
        """Hold back output until `release`."""
        self._holding = True

    def release(self) -> None:
        """Write all held output."""
        self._holding = False
        self.flush()

    def erase_down(self) -> None:
        """Erase from the start of this line to the end of the screen.

        Not as one sequence: with the cursor at the top, tmux treats that as a cleared screen and saves what was drawn
        there, half a reply and the input line, in its scroll-back.
        """
        self.write_raw("\x1b[K\x1b[C\x1b[J\x1b[D")

    def flush(self) -> None:
        """Write pending output, unless it is held back."""
        if not self._holding:
            super().flush()


class Canvas:
    """Screen without knowledge of sessions; ``below`` is shown under the live part: input, menus, status."""

    def __init__(
        self, stdout: TextIO, term: str, below: Sequence[AnyContainer], keys: KeyBindingsBase, style: BaseStyle
    ) -> None:
        self._output = BufferedOutput(stdout, term)
        self._live: StyleAndTextTuples = []
        self._pending_text: list[str] = []
        self._suspended = False
        window = Window(FormattedTextControl(lambda: self._live), wrap_lines=True, dont_extend_height=True)
        live = ConditionalContainer(window, Condition(lambda: bool(self._live)))
        self.app: Application[int] = Application(
            layout=Layout(HSplit([live, *below])),
            key_bindings=keys,
            style=style,
            output=self._output,
            erase_when_done=True,
            after_render=lambda _app: self._output.release(),
        )

    @property
    def width(self) -> int:
        """Number of columns."""
        return self._output.get_size().columns

    @property
    def height(self) -> int:
        """Number of rows."""
        return self._output.get_size().rows

    def flush(self) -> None:
        """Write all held output, before another program writes to the terminal."""
        self._output.release()

    def ring(self) -> None:
        """Ring the terminal bell."""
        self._output.write_raw("\a")
        self._output.flush()

    def notify(self, text: str) -> None:
        """Show a desktop notification, if the terminal supports it."""
        self._output.write_raw(f"\x1b]9;{format_cell(text)}\a")
        self._output.flush()

    def end_foreign_line(self) -> None:
        """Start a new line if another program left the cursor inside one.

        Printing as many spaces as there are columns moves the cursor to the next line only if it was not at the margin.
        """
        self._output.write_raw(" " * self.width + "\r")
        self._output.erase_end_of_line()
        self._output.flush()

    def set_live(self, text: str) -> None:
        """Replace the live part above the input line."""
        self._live = to_formatted_text(ANSI(text))
        self.app.invalidate()

    def print(self, text: str, live: str | None = None) -> None:
        """Print styled lines above everything that is drawn; ``live`` replaces the live part."""
        if live is not None:
            self._live = to_formatted_text(ANSI(live))
        if self._suspended or not self.app.is_running:
            self._pending_text.append(text)
            return
        self._output.hold()
        self.app.renderer.erase(leave_alternate_screen=False)
        self._output.write_raw(text.replace("\n", "\r\n"))
        self.app.invalidate()

    def print_pending(self) -> None:
        """Print output held back while the terminal was suspended or not yet open."""
        pending, self._pending_text = "".join(self._pending_text), []
        if pending:
            self.print(pending)

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Release the terminal to another program; use inside prompt_toolkit's `in_terminal`."""
        self._suspended = True
        try:
            yield
        finally:
            self._suspended = False

    def finish(self) -> str:
        """Return output that was never printed, for the caller to print."""
        self._output.release()
        pending, self._pending_text = "".join(self._pending_text), []
        return pending


def _get_size(stdout: TextIO) -> Size:
    try:
        size = os.get_terminal_size(stdout.fileno())
    except OSError:
        return _FALLBACK_SIZE
    return Size(rows=size.lines or _FALLBACK_SIZE.rows, columns=size.columns or _FALLBACK_SIZE.columns)
