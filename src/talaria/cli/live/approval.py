"""The open approval question: shown above the input line, answered by typing a letter there and Enter.

Nothing is chosen beforehand. Only what was typed into an empty line counts, after the question had been on the screen
for a moment in which no key was pressed: everything else is a draft, and stays one.
"""

import asyncio
from collections.abc import Callable
from textwrap import fill

from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.layout import ConditionalContainer, Window
from prompt_toolkit.layout.controls import FormattedTextControl

from talaria.cli.live.line import InputLine

_MARK = "allow? ❯ "
_ANSWERS = "y once · s for this conversation · a always · n no"
_KEYS = "Type the letter and press Enter. Esc refuses."
_DRAFT = "Your draft comes first: send it or clear it to answer, or press Esc to set it aside."
_INDENT = "  "

Decide = Callable[[str], str | None]


class ApprovalPrompt:
    """Asks for one decision at a time; further questions wait for their turn.

    ``width`` returns the columns of the terminal, ``changed`` redraws.
    """

    def __init__(self, line: InputLine, width: Callable[[], int], changed: Callable[[], None]) -> None:
        self._line = line
        self._width = width
        self._changed = changed
        self._summary = ""
        self._set_aside = ""
        self._decide: Decide = str
        self._decision: asyncio.Future[str | None] | None = None
        self._turn = asyncio.Lock()
        self.is_open = False
        window = Window(FormattedTextControl(self._fragments), dont_extend_height=True)
        self.container = ConditionalContainer(window, Condition(lambda: self.is_open))

    async def ask(self, summary: str, decide: Decide) -> str:
        """Return the decision of the person; ``decide`` reads a typed line, and returns ``None`` if it is no answer."""
        async with self._turn:
            self._summary, self._decide, self.is_open = summary, decide, True
            try:
                while True:
                    self._changed()
                    await self._line.quiet()
                    decision = await self._next_decision()
                    if decision is not None:
                        return decision
            finally:
                self._close()

    def take(self) -> bool:
        """Take the typed line as the decision; ``False`` where it is a message. An empty line decides nothing."""
        if not self.is_open or not self._line.buffer.text:
            return self.is_open
        decision = self._decide(self._line.buffer.text) if self._decision else None
        return self._settle(decision) and decision is not None

    def escape(self) -> None:
        """Set a draft aside, or refuse where the line is empty and the question has been visible."""
        if self._line.buffer.text:
            self._set_aside = self._line.buffer.text
            self._line.empty()
        else:
            self._settle("no")

    def _settle(self, decision: str | None) -> bool:
        """End the wait for a decision, if there is one; what was typed as the decision is gone then."""
        if self._decision is None or self._decision.done():
            return False
        self._decision.set_result(decision)
        if decision is not None:
            self._line.empty()
        return True

    async def _next_decision(self) -> str | None:
        """Return what the next line decides; ``None`` where it was a message."""
        self._decision = asyncio.get_running_loop().create_future()
        self._line.mark = _MARK
        self._changed()
        try:
            return await self._decision
        finally:
            self._decision = self._line.mark = None

    def _close(self) -> None:
        self.is_open = False
        if self._set_aside and not self._line.buffer.text:
            self._line.fill_in(self._set_aside)
        self._set_aside = ""
        self._changed()

    def _fragments(self) -> StyleAndTextTuples:
        lines: StyleAndTextTuples = [("class:question", f"? {self._summary}\n")]
        if self._decision is None:
            return [*lines, ("class:hint", self._filled(_DRAFT) if self._line.buffer.text else f"{_INDENT}…")]
        return [*lines, ("class:choice", f"{self._filled(_ANSWERS)}\n"), ("class:hint", self._filled(_KEYS))]

    def _filled(self, text: str) -> str:
        return fill(text, max(len(_INDENT) + 4, self._width() - 1), initial_indent=_INDENT, subsequent_indent=_INDENT)
