"""A choice under the cursor: a question, its answers, arrow keys and Enter."""

import asyncio
from collections.abc import Callable, Sequence

from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import ConditionalContainer, Window
from prompt_toolkit.layout.controls import FormattedTextControl

_DIGITS = "123456789"


class ChoiceMenu:
    """Asks one thing at a time; further questions wait for their turn. ``moved`` hears when it comes and goes."""

    def __init__(self, moved: Callable[[], None]) -> None:
        self._moved = moved
        self._question: StyleAndTextTuples = []
        self._choices: Sequence[str] = ()
        self._selected = 0
        self._answer: asyncio.Future[int | None] | None = None
        self._turn = asyncio.Lock()
        control = FormattedTextControl(self._fragments, focusable=True, key_bindings=self._keys(), show_cursor=False)
        self.window = Window(control, wrap_lines=True, dont_extend_height=True)
        self.container = ConditionalContainer(self.window, Condition(lambda: self.active))

    @property
    def active(self) -> bool:
        """Whether somebody is asked."""
        return self._answer is not None

    async def ask(self, question: StyleAndTextTuples, choices: Sequence[str]) -> int | None:
        """Return which of the choices was taken; ``None`` for none of them."""
        async with self._turn:
            self._question, self._choices, self._selected = question, choices, 0
            self._answer = asyncio.get_running_loop().create_future()
            self._moved()
            try:
                return await self._answer
            finally:
                self._answer = None
                self._moved()

    def _settle(self, answer: int | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(answer)

    def _fragments(self) -> StyleAndTextTuples:
        lines: StyleAndTextTuples = list(self._question)
        for place, choice in enumerate(self._choices):
            chosen = place == self._selected
            mark = f"\n {'❯' if chosen else ' '} {place + 1}. "
            lines.append(("class:chosen" if chosen else "class:choice", f"{mark}{choice}"))
        lines.append(("class:hint", "\n   ↑↓ and Enter, or the number; Esc for none"))
        return lines

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("up")
        @keys.add("c-p")
        def up(_event: KeyPressEvent) -> None:
            self._selected = (self._selected - 1) % len(self._choices)

        @keys.add("down")
        @keys.add("c-n")
        @keys.add("tab")
        def down(_event: KeyPressEvent) -> None:
            self._selected = (self._selected + 1) % len(self._choices)

        @keys.add("enter")
        def take(_event: KeyPressEvent) -> None:
            self._settle(self._selected)

        @keys.add("escape", eager=True)
        @keys.add("c-c", eager=True)
        def none(_event: KeyPressEvent) -> None:
            self._settle(None)

        for digit in _DIGITS:

            @keys.add(digit)
            def number(event: KeyPressEvent) -> None:
                place = int(event.data) - 1
                if place < len(self._choices):
                    self._settle(place)

        return keys
