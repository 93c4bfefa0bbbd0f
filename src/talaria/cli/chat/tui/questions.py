"""Questions above the input line: the approval prompt, answered by typing, and the menu of choices.

An approval has no default answer. Only text typed into an empty line counts, after the question has been visible for a
moment without a key press: everything else is a draft and stays one.
"""

import asyncio
from collections.abc import Callable, Sequence
from textwrap import fill
from typing import NamedTuple

from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import ConditionalContainer, Window
from prompt_toolkit.layout.controls import FormattedTextControl

from talaria.cli.chat.tui.input_line import InputLine

_APPROVAL_KEYS = "Type the letter and press Enter. Esc refuses."
_DRAFT_FIRST = "Send or clear your draft to answer, or press Esc to set it aside."
_INDENT = "  "
ParseDecision = Callable[[str], str | None]
_DIGITS = "123456789"
_CHOICES_SHOWN = 10
_GAP = "  "
_HINT = "\n   ↑/↓ and Enter or a number to choose, Esc to cancel"
_OPEN_HINT = "\n   ↑/↓ and Enter or a number to choose, or type an answer; Esc to cancel"
_FILTER_HINT = "\n   ↑/↓ and Enter to choose, type to filter, Esc to cancel"


class Wording(NamedTuple):
    """Prompt shown before the input line while a question is open, and the valid answers."""

    mark: str
    answers: str


ALLOW = Wording("allow? ❯ ", "y once · s for this conversation · a always · n no")


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
        window = Window(FormattedTextControl(self._render_fragments), dont_extend_height=True)
        self.container = ConditionalContainer(window, Condition(lambda: self.is_open))

    async def ask(self, summary: str, decide: ParseDecision, wording: Wording = ALLOW) -> str:
        """Return the user's decision; ``decide`` parses a line and returns ``None`` for other text."""
        async with self._lock:
            self._summary, self._decide, self._wording, self.is_open = summary, decide, wording, True
            try:
                while True:
                    self._on_change()
                    await self._line.wait_until_quiet()
                    decision = await self._read_next_decision()
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
            self._line.discard_text()
        else:
            self._resolve("no")

    def _resolve(self, decision: str | None) -> bool:
        """End the wait for a decision, if any, and clear the line if it was the decision."""
        if self._decision is None or self._decision.done():
            return False
        self._decision.set_result(decision)
        if decision is not None:
            self._line.discard_text()
        return True

    async def _read_next_decision(self) -> str | None:
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

    def _render_fragments(self) -> StyleAndTextTuples:
        lines: StyleAndTextTuples = [("class:question", f"? {self._summary}\n")]
        if self._decision is None:
            return [*lines, ("class:hint", self._wrap(_DRAFT_FIRST) if self._line.buffer.text else f"{_INDENT}…")]
        return [
            *lines,
            ("class:choice", f"{self._wrap(self._wording.answers)}\n"),
            ("class:hint", self._wrap(_APPROVAL_KEYS)),
        ]

    def _wrap(self, text: str) -> str:
        return fill(text, max(len(_INDENT) + 4, self._width() - 1), initial_indent=_INDENT, subsequent_indent=_INDENT)


class ChoiceMenu:
    """Menu for one question at a time; further questions are queued.

    With more choices than digits, typed text filters them, and only a part is shown. What follows two spaces in a
    choice describes it and isn't searched. ``on_change`` is called when the menu opens and closes. If another answer is
    possible, typed text begins it: ``on_type`` gets that text.
    """

    def __init__(self, on_change: Callable[[], None], on_type: Callable[[str], None]) -> None:
        self._on_change = on_change
        self._on_type = on_type
        self._question: StyleAndTextTuples = []
        self._choices: Sequence[str] = ()
        self._matches: list[int] = []
        self._text = ""
        self._selected = 0
        self._answer: asyncio.Future[int | None] | None = None
        self._lock = asyncio.Lock()
        control = FormattedTextControl(
            self._render_fragments, focusable=True, key_bindings=self._build_keys(), show_cursor=False
        )
        self.window = Window(control, wrap_lines=True, dont_extend_height=True)
        self.container = ConditionalContainer(self.window, Condition(lambda: self.is_active))

    @property
    def is_active(self) -> bool:
        """Return whether a question is open."""
        return self._answer is not None

    async def ask(self, question: StyleAndTextTuples, choices: Sequence[str]) -> int | None:
        """Return the index of the chosen answer, or ``None``."""
        async with self._lock:
            self._question, self._choices = question, choices
            self._filter("")
            self._answer = asyncio.get_running_loop().create_future()
            self._on_change()
            try:
                return await self._answer
            finally:
                self._answer = None
                self._on_change()

    @property
    def _is_long(self) -> bool:
        return len(self._choices) > len(_DIGITS)

    @property
    def _is_open(self) -> bool:
        from talaria.runtime.questions import OTHER_CHOICE  # noqa: PLC0415 (loaded after the prompt, before a question)

        return not self._is_long and OTHER_CHOICE in self._choices

    def _filter(self, text: str) -> None:
        words = text.lower().split()
        self._text, self._selected = text, 0
        names = [choice.partition(_GAP)[0].lower() for choice in self._choices]
        self._matches = [index for index, name in enumerate(names) if all(word in name for word in words)]

    def _move(self, by: int) -> None:
        if self._matches:
            self._selected = (self._selected + by) % len(self._matches)

    def _resolve(self, answer: int | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(answer)

    def _render_fragments(self) -> StyleAndTextTuples:
        lines: StyleAndTextTuples = list(self._question)
        if self._is_long:
            lines.append(("class:hint", f"\n   Filter: {self._text}▏  {len(self._matches)} of {len(self._choices)}"))
        first = (
            max(0, min(self._selected - _CHOICES_SHOWN // 2, len(self._matches) - _CHOICES_SHOWN))
            if self._is_long
            else 0
        )
        shown = self._matches[first : first + _CHOICES_SHOWN] if self._is_long else self._matches
        for position, index in enumerate(shown, first):
            is_selected = position == self._selected
            number = "" if self._is_long else f"{index + 1}. "
            mark = f"\n {'❯' if is_selected else ' '} {number}"
            lines.append(("class:chosen" if is_selected else "class:choice", f"{mark}{self._choices[index]}"))
        lines.append(("class:hint", _FILTER_HINT if self._is_long else _OPEN_HINT if self._is_open else _HINT))
        return lines

    def _build_keys(self) -> KeyBindings:
        keys = KeyBindings()
        is_long = Condition(lambda: self._is_long)
        for key in ("up", "c-p"):
            keys.add(key)(lambda _event: self._move(-1))
        for key in ("down", "c-n", "tab"):
            keys.add(key)(lambda _event: self._move(1))
        keys.add("enter")(self._take)
        for key in ("escape", "c-c"):
            keys.add(key, eager=True)(lambda _event: self._resolve(None))
        for digit in _DIGITS:
            keys.add(digit, filter=~is_long)(self._take_number)
        keys.add("backspace", filter=is_long)(lambda _event: self._filter(self._text[:-1]))
        keys.add(Keys.Any, filter=is_long)(self._type)
        keys.add(Keys.BracketedPaste, filter=is_long)(self._type)
        is_open = Condition(lambda: self._is_open)
        keys.add(Keys.Any, filter=is_open)(self._begin_answer)
        keys.add(Keys.BracketedPaste, filter=is_open)(self._begin_answer)
        return keys

    def _take(self, _event: KeyPressEvent) -> None:
        if self._matches:
            self._resolve(self._matches[self._selected])

    def _take_number(self, event: KeyPressEvent) -> None:
        index = int(event.data) - 1
        if index < len(self._choices):
            self._resolve(index)

    def _type(self, event: KeyPressEvent) -> None:
        self._filter(self._text + "".join(character for character in event.data if character.isprintable()))

    def _begin_answer(self, event: KeyPressEvent) -> None:
        if event.data.isprintable():
            self._on_type(event.data)
            self._resolve(len(self._choices) - 1)


CARRY_OUT = Wording("carry out? ❯ ", "y yes · n no, keep planning · n and what to change")
TRUST = Wording("trust? ❯ ", "y yes, as they are now · n no, ignore them")
