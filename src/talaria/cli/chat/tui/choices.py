"""Choice menu: a question with answers, arrow keys and Enter."""

import asyncio
from collections.abc import Callable, Sequence

from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import ConditionalContainer, Window
from prompt_toolkit.layout.controls import FormattedTextControl

_DIGITS = "123456789"


class ChoiceMenu:
    """Menu for one question at a time; further questions are queued.

    ``on_change`` is called when it opens and closes.
    """

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._question: StyleAndTextTuples = []
        self._choices: Sequence[str] = ()
        self._selected = 0
        self._answer: asyncio.Future[int | None] | None = None
        self._lock = asyncio.Lock()
        control = FormattedTextControl(
            self._fragments, focusable=True, key_bindings=self._build_keys(), show_cursor=False
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
            self._question, self._choices, self._selected = question, choices, 0
            self._answer = asyncio.get_running_loop().create_future()
            self._on_change()
            try:
                return await self._answer
            finally:
                self._answer = None
                self._on_change()

    def _resolve(self, answer: int | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(answer)

    def _fragments(self) -> StyleAndTextTuples:
        lines: StyleAndTextTuples = list(self._question)
        for index, choice in enumerate(self._choices):
            is_selected = index == self._selected
            mark = f"\n {'❯' if is_selected else ' '} {index + 1}. "
            lines.append(("class:chosen" if is_selected else "class:choice", f"{mark}{choice}"))
        lines.append(("class:hint", "\n   ↑/↓ and Enter or a number to choose, Esc to cancel"))
        return lines

    def _build_keys(self) -> KeyBindings:
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
            self._resolve(self._selected)

        @keys.add("escape", eager=True)
        @keys.add("c-c", eager=True)
        def none(_event: KeyPressEvent) -> None:
            self._resolve(None)

        for digit in _DIGITS:

            @keys.add(digit)
            def number(event: KeyPressEvent) -> None:
                index = int(event.data) - 1
                if index < len(self._choices):
                    self._resolve(index)

        return keys
