"""The open approval question: shown above the input line, answered by typing a letter there and Enter.

Nothing is chosen beforehand. Only what was typed into an empty line counts, after the question had been on the screen
for a moment in which no key was pressed: everything else is a draft, and stays one.
"""

import asyncio
from collections.abc import Callable

from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.layout import ConditionalContainer, Window
from prompt_toolkit.layout.controls import FormattedTextControl

from talaria.cli.live.line import InputLine

_QUIET_SECONDS = 0.5
_MARK = "allow? ❯ "
_ANSWERS = "y once · s for this conversation · a always · n no"
_KEYS = "Type the letter and press Enter. Esc refuses."
_DRAFT = "Your draft comes first: send it or clear it to answer, or press Esc to set it aside."

Decide = Callable[[str], str | None]


def _no_decision(_typed: str) -> None:
    return None


class ApprovalPrompt:
    """Asks for one decision at a time; further questions wait for their turn. ``changed`` is called to redraw."""

    def __init__(self, line: InputLine, changed: Callable[[], None]) -> None:
        self._line = line
        self._changed = changed
        self._decide: Decide = _no_decision
        self._summary = ""
        self._ready = False
        self._set_aside = ""
        self._timer: asyncio.TimerHandle | None = None
        self._decision: asyncio.Future[str] | None = None
        self._turn = asyncio.Lock()
        line.buffer.on_text_changed += lambda _buffer: self._typed()
        window = Window(FormattedTextControl(self._fragments), wrap_lines=True, dont_extend_height=True)
        self.container = ConditionalContainer(window, Condition(lambda: self.is_open))

    @property
    def is_open(self) -> bool:
        """Whether a decision is being asked for."""
        return self._decision is not None and not self._decision.done()

    async def ask(self, summary: str, decide: Decide) -> str:
        """Return the decision of the person; ``decide`` reads a typed line, and returns ``None`` if it is no answer."""
        async with self._turn:
            self._summary, self._decide = summary, decide
            self._decision = asyncio.get_running_loop().create_future()
            self._wait_for_quiet()
            try:
                return await self._decision
            finally:
                self._close()

    def take(self) -> bool:
        """Take the typed line as the decision; ``False`` where it is a message. An empty line decides nothing."""
        if not self.is_open:
            return False
        if not self._line.buffer.text:
            return True
        decision = self._decide(self._line.buffer.text) if self._ready else None
        if decision is None:
            self._wait_for_quiet()
            return False
        self._settle(decision)
        return True

    def escape(self) -> None:
        """Set a draft aside, or refuse where the line is empty and the question has been visible."""
        if self._line.buffer.text:
            self._set_aside = self._line.buffer.text
            self._line.buffer.reset()
            self._wait_for_quiet()
        elif self._ready:
            self._settle("no")

    def _settle(self, decision: str) -> None:
        self._line.buffer.reset()
        if self._decision is not None and not self._decision.done():
            self._decision.set_result(decision)

    def _close(self) -> None:
        self._decision = None
        self._ready = False
        self._line.mark = None
        if self._timer is not None:
            self._timer.cancel()
        if self._set_aside and not self._line.buffer.text:
            self._line.fill_in(self._set_aside)
        self._set_aside = ""
        self._changed()

    def _typed(self) -> None:
        if self.is_open and not self._ready:
            self._wait_for_quiet()

    def _wait_for_quiet(self) -> None:
        self._ready = False
        self._line.mark = None
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(_QUIET_SECONDS, self._become_ready)
        self._changed()

    def _become_ready(self) -> None:
        if self.is_open and not self._line.buffer.text:
            self._ready = True
            self._line.mark = _MARK
            self._changed()

    def _fragments(self) -> StyleAndTextTuples:
        lines: StyleAndTextTuples = [("class:question", f"? {self._summary}\n")]
        if self._ready:
            return [*lines, ("class:choice", f"  {_ANSWERS}\n"), ("class:hint", f"  {_KEYS}")]
        return [*lines, ("class:hint", f"  {_DRAFT}" if self._line.buffer.text else "  …")]
