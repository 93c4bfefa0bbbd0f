"""The screen of the chat: text that is final goes up into the scroll-back, the rest is drawn anew below it."""

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

from talaria.cli.cells import cell

_FALLBACK = Size(rows=24, columns=80)


class HeldOutput(Vt100_Output):
    """A terminal that can be told to hold back what is written, so that a change of the screen is one write."""

    def __init__(self, stdout: TextIO, term: str) -> None:
        # Asking the terminal where the cursor is (CPR) is of no use here, and some terminals never answer.
        super().__init__(stdout, lambda: _size(stdout), term=term, enable_cpr=False)
        self._holding = False

    def hold(self) -> None:
        """Keep what is written until `let_go`."""
        self._holding = True

    def let_go(self) -> None:
        """Write all that was held back."""
        self._holding = False
        self.flush()

    def erase_down(self) -> None:
        """Erase from the margin of this line to the end of the screen.

        Not in one sequence: where the cursor is at the top, tmux takes that for a cleared screen, and keeps what was
        drawn there, half a reply and the input line, in its scroll-back.
        """
        self.write_raw("\x1b[K\x1b[C\x1b[J\x1b[D")

    def flush(self) -> None:
        """Write what waits, unless it is held back."""
        if not self._holding:
            super().flush()


class Canvas:
    """Draws; knows nothing of conversations. ``below`` is what stands under the live part: input, menus, status."""

    def __init__(
        self, stdout: TextIO, term: str, below: Sequence[AnyContainer], keys: KeyBindingsBase, style: BaseStyle
    ) -> None:
        self._output = HeldOutput(stdout, term)
        self._live: StyleAndTextTuples = []
        self._held_back: list[str] = []
        self._lent = False
        drawn = Window(FormattedTextControl(lambda: self._live), wrap_lines=True, dont_extend_height=True)
        live = ConditionalContainer(drawn, Condition(lambda: bool(self._live)))
        self.app: Application[int] = Application(
            layout=Layout(HSplit([live, *below])),
            key_bindings=keys,
            style=style,
            output=self._output,
            erase_when_done=True,
            after_render=lambda _app: self._output.let_go(),
        )

    @property
    def width(self) -> int:
        """How many columns there are."""
        return self._output.get_size().columns

    @property
    def height(self) -> int:
        """How many rows there are."""
        return self._output.get_size().rows

    def flush(self) -> None:
        """Write all that was held back: another program is about to write to the same terminal."""
        self._output.let_go()

    def ring(self) -> None:
        """Ring the bell of the terminal."""
        self._output.write_raw("\a")
        self._output.flush()

    def notify(self, text: str) -> None:
        """Show a notification on the desktop, where the terminal can do that."""
        self._output.write_raw(f"\x1b]9;{cell(text)}\a")
        self._output.flush()

    def end_foreign_line(self) -> None:
        """Begin a new line if another program left the cursor in the middle of one.

        As many blanks as there are columns move the cursor to the next line only where it was not at the margin.
        """
        self._output.write_raw(" " * self.width + "\r")
        self._output.erase_end_of_line()
        self._output.flush()

    def set_live(self, text: str) -> None:
        """Show this above the input line, instead of what was there."""
        self._live = to_formatted_text(ANSI(text))
        self.app.invalidate()

    def print(self, text: str, live: str | None = None) -> None:
        """Add whole lines, with styles, above everything that is drawn; ``live`` replaces the live part with it."""
        if live is not None:
            self._live = to_formatted_text(ANSI(live))
        if self._lent or not self.app.is_running:
            self._held_back.append(text)
            return
        self._output.hold()
        self.app.renderer.erase(leave_alternate_screen=False)
        self._output.write_raw(text.replace("\n", "\r\n"))
        self.app.invalidate()

    def show_held_back(self) -> None:
        """Print what could not be printed while the terminal was lent or before it was opened."""
        held, self._held_back = "".join(self._held_back), []
        if held:
            self.print(held)

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Leave the terminal to another program meanwhile; to be used inside prompt_toolkit's `in_terminal`."""
        self._lent = True
        try:
            yield
        finally:
            self._lent = False

    def finish(self) -> str:
        """Return what was never printed, for whoever has the terminal now."""
        self._output.let_go()
        held, self._held_back = "".join(self._held_back), []
        return held


def _size(stdout: TextIO) -> Size:
    try:
        size = os.get_terminal_size(stdout.fileno())
    except OSError:
        return _FALLBACK
    return Size(rows=size.lines or _FALLBACK.rows, columns=size.columns or _FALLBACK.columns)
