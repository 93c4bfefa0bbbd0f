"""Approval prompt above the input line, answered by typing a character and Enter.

There is no default answer. Only text typed into an empty line counts, after the question has been visible for a moment
without a key press: everything else is a draft and stays one.
"""

import asyncio
from collections.abc import Callable
from textwrap import fill
from typing import NamedTuple

from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.layout import ConditionalContainer, Window
from prompt_toolkit.layout.controls import FormattedTextControl

from talaria.cli.chat.tui.input_line import InputLine

_KEYS = "Type the letter and press Enter. Esc refuses."
_DRAFT_FIRST = "Send or clear your draft to answer, or press Esc to set it aside."
_INDENT = "  "

ParseDecision = Callable[[str], str | None]


class Wording(NamedTuple):
    """Prompt shown before the input line while a question is open, and the valid answers."""

    mark: str
    answers: str


ALLOW = Wording("allow? ❯ ", "y once · s for this conversation · a always · n no")
CARRY_OUT = Wording("carry out? ❯ ", "y yes · n no, keep planning · n and what to change")
TRUST = Wording("trust? ❯ ", "y yes, as they are now · n no, ignore them")


class ApprovalPrompt:
    """Prompt for one decision at a time; further questions are queued.

    ``width`` returns the columns of the terminal, ``on_change`` redraws.
    """

    def __init__(self, line: InputLine, width: Callable[[], int], on_change: Callable[[], None]) -> None:
        self._line = line
        self._width = width
        self._on_change = on_change
        self._summary = ""
        self._saved_draft = ""
        self._decide: ParseDecision = str
        self._wording = ALLOW
        self._decision: asyncio.Future[str | None] | None = None
        self._lock = asyncio.Lock()
        self.is_open = False
        window = Window(FormattedTextControl(self._fragments), dont_extend_height=True)
        self.container = ConditionalContainer(window, Condition(lambda: self.is_open))

    async def ask(self, summary: str, decide: ParseDecision, wording: Wording = ALLOW) -> str:
        """Return the user's decision; ``decide`` parses a line and returns ``None`` for other text."""
        async with self._lock:
            self._summary, self._decide, self._wording, self.is_open = summary, decide, wording, True
            try:
                while True:
                    self._on_change()
                    await self._line.wait_until_quiet()
                    decision = await self._next_decision()
                    if decision is not None:
                        return decision
            finally:
                self._close()

    def take(self) -> bool:
        """Use the typed line as the decision; ``False`` if it is a message. An empty line is ignored."""
        if not self.is_open or not self._line.buffer.text:
            return self.is_open
        decision = self._decide(self._line.buffer.text) if self._decision else None
        return self._resolve(decision) and decision is not None

    def escape(self) -> None:
        """Set a draft aside, or refuse if the line is empty and the question has been visible."""
        if self._line.buffer.text:
            self._saved_draft = self._line.buffer.text
            self._line.empty()
        else:
            self._resolve("no")

    def _resolve(self, decision: str | None) -> bool:
        """End the wait for a decision, if any, and clear the line if it was the decision."""
        if self._decision is None or self._decision.done():
            return False
        self._decision.set_result(decision)
        if decision is not None:
            self._line.empty()
        return True

    async def _next_decision(self) -> str | None:
        """Return the decision of the next line; ``None`` if it was a message."""
        self._decision = asyncio.get_running_loop().create_future()
        self._line.mark = self._wording.mark
        self._on_change()
        try:
            return await self._decision
        finally:
            self._decision = self._line.mark = None

    def _close(self) -> None:
        self.is_open = False
        if self._saved_draft and not self._line.buffer.text:
            self._line.set_input_text(self._saved_draft)
        self._saved_draft = ""
        self._on_change()

    def _fragments(self) -> StyleAndTextTuples:
        lines: StyleAndTextTuples = [("class:question", f"? {self._summary}\n")]
        if self._decision is None:
            return [*lines, ("class:hint", self._wrap(_DRAFT_FIRST) if self._line.buffer.text else f"{_INDENT}…")]
        return [
            *lines,
            ("class:choice", f"{self._wrap(self._wording.answers)}\n"),
            ("class:hint", self._wrap(_KEYS)),
        ]

    def _wrap(self, text: str) -> str:
        return fill(text, max(len(_INDENT) + 4, self._width() - 1), initial_indent=_INDENT, subsequent_indent=_INDENT)
