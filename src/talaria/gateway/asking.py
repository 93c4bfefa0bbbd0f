"""Choices in a chat: buttons where the network has them, numbers elsewhere, and only for whom they are meant."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct

from talaria.contracts.platform import Button, Content
from talaria.core.ids import new_id

_PATIENCE = 300.0


class _Open(Struct, frozen=True):
    choices: tuple[str, ...]
    answer: "asyncio.Future[int | str]"


class Asking:
    """The open choices of one chat; ``post`` writes into it, ``may_answer`` says whose word counts."""

    def __init__(
        self,
        post: Callable[[Content], Awaitable[None]],
        may_answer: Callable[[str], bool],
        *,
        buttons: bool,
        patience: float = _PATIENCE,
    ) -> None:
        self._post = post
        self._may_answer = may_answer
        self._buttons = buttons
        self._patience = patience
        self._open: dict[str, _Open] = {}

    async def choose(self, question: str, choices: Sequence[str]) -> int | None:
        """Post a question and return which of its answers was taken; ``None`` when none was, in time."""
        number = new_id()
        listed = "\n".join(f"{place}. {choice}" for place, choice in enumerate(choices, 1))
        hint = "" if self._buttons else "\n\nAnswer with the number."
        buttons = tuple(Button(choice, f"{number}:{place}") for place, choice in enumerate(choices))
        text = question if self._buttons else f"{question}\n\n{listed}{hint}"
        answer = await self._wait(number, tuple(choices), Content(text=text, buttons=buttons if self._buttons else ()))
        return answer if isinstance(answer, int) else None

    async def ask(self, question: str) -> str:
        """Post a question and return the next thing that is written; nothing when nothing is, in time."""
        answer = await self._wait(new_id(), (), Content(text=question))
        return answer if isinstance(answer, str) else ""

    def press(self, value: str, by: str) -> bool:
        """Take a button; ``False`` when it is not one of an open choice, or not this person's to press."""
        number, _, place = value.rpartition(":")
        found = self._open.get(number)
        if found is None or not place.isdecimal() or int(place) >= len(found.choices):
            return False
        return self._settle(found, int(place), by)

    def write(self, text: str, by: str) -> bool:
        """Take what was written as the answer to the oldest open question, if it can be one."""
        for found in self._open.values():
            if not found.choices:
                return self._settle(found, text, by)
            if text.strip().isdecimal() and 0 < int(text) <= len(found.choices):
                return self._settle(found, int(text) - 1, by)
        return False

    def _settle(self, found: _Open, answer: int | str, by: str) -> bool:
        if not self._may_answer(by) or found.answer.done():
            return False
        found.answer.set_result(answer)
        return True

    async def _wait(self, number: str, choices: tuple[str, ...], content: Content) -> int | str | None:
        found = self._open[number] = _Open(choices, asyncio.get_running_loop().create_future())
        try:
            await self._post(content)
            async with asyncio.timeout(self._patience):
                return await found.answer
        except TimeoutError:
            return None
        finally:
            del self._open[number]
