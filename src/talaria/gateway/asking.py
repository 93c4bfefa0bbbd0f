"""Choices in a chat: buttons where the network has them, numbers elsewhere, and only for whom they are meant."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from msgspec import Struct

from talaria.contracts.platform import Button, Content
from talaria.core.ids import new_id
from talaria.core.senders import is_same_sender

_PATIENCE = 300.0
_PLAIN = "\N{VARIATION SELECTOR-16}"  # what networks put behind some emoji, and others leave out
_YES, _NO = ("👍", "✅"), ("👎", "❌")


class _Open(Struct, frozen=True):
    whom: str
    choices: tuple[str, ...]
    answer: "asyncio.Future[int | str]"


class Asking:
    """The open choices of one chat; ``post`` writes into it, under a key. ``closed`` learns what became of each.

    Each is put to somebody, whose word counts, as does that of the owner; where it is put to nobody, the owner's alone.
    """

    def __init__(
        self,
        post: Callable[[Content, str], Awaitable[None]],
        *,
        buttons: bool,
        closed: Callable[[str, Content, str], None] = lambda _key, _content, _decision: None,
        patience: float = _PATIENCE,
    ) -> None:
        self._post = post
        self._closed = closed
        self._buttons = buttons
        self._patience = patience
        self._open: dict[str, _Open] = {}
        self.asked = asyncio.Event()  # set while something is asked

    async def choose(self, whom: str, question: str, choices: Sequence[str]) -> int | None:
        """Post a question and return which of its answers was taken; ``None`` when none was, in time."""
        number = new_id()
        listed = "\n".join(f"{place}. {choice}" for place, choice in enumerate(choices, 1))
        hint = "" if self._buttons else "\n\nAnswer with the number."
        buttons = tuple(Button(choice, f"{number}:{place}") for place, choice in enumerate(choices))
        text = question if self._buttons else f"{question}\n\n{listed}{hint}"
        content = Content(text=text, buttons=buttons if self._buttons else ())
        answer = await self._wait(number, _opened(whom, tuple(choices)), content)
        return answer if isinstance(answer, int) else None

    async def ask(self, whom: str, question: str) -> str:
        """Post a question and return the next thing that is written; nothing when nothing is, in time."""
        answer = await self._wait(new_id(), _opened(whom, ()), Content(text=question))
        return answer if isinstance(answer, str) else ""

    def press(self, value: str, by: str, *, owner: bool = False) -> bool:
        """Take a button; ``False`` when it is not one of an open choice, or not this person's to press."""
        number, _, place = value.rpartition(":")
        found = self._open.get(number)
        if found is None or not place.isdecimal() or int(place) >= len(found.choices):
            return False
        return _may_answer(found, by, owner=owner) and _settle(found, int(place))

    def is_open(self, value: str) -> bool:
        """Tell whether a button is one of an open choice."""
        return value.rpartition(":")[0] in self._open

    @property
    def waiting(self) -> list[str]:
        """The keys of what is asked now, oldest first."""
        return list(self._open)

    def mark(self, key: str, emoji: str, by: str, *, owner: bool = False) -> bool:
        """Take a mark on a question as its answer: thumbs for the first and the last choice, or its number."""
        found = self._open.get(key)
        if found is None or not _may_answer(found, by, owner=owner):
            return False
        sign = emoji.removesuffix(_PLAIN)
        signs = {**dict.fromkeys(_YES, 0), **dict.fromkeys(_NO, len(found.choices) - 1)}
        signs |= {f"{place}\N{COMBINING ENCLOSING KEYCAP}": place - 1 for place in range(1, 10)}
        place = signs.get(sign.replace(_PLAIN, ""))
        return place is not None and 0 <= place < len(found.choices) and _settle(found, place)

    def fits(self, text: str, by: str, *, owner: bool = False) -> bool:
        """Tell whether this may be the answer to an open question."""
        return self._meant(text, by, owner=owner) is not None

    def write(self, text: str, by: str, *, owner: bool = False) -> bool:
        """Take what was written as the answer to the oldest open question, if it can be one."""
        found = self._meant(text, by, owner=owner)
        if found is None:
            return False
        return _settle(found, int(text) - 1 if found.choices else text)

    def _meant(self, text: str, by: str, *, owner: bool) -> _Open | None:
        """Return the oldest question that this person may answer, if this text can be the answer."""
        for found in self._open.values():
            if found.answer.done() or not text or not _may_answer(found, by, owner=owner):
                continue
            if not found.choices:
                return found
            if text.strip().isdecimal() and 0 < int(text) <= len(found.choices):
                return found
        return None

    async def _wait(self, number: str, found: _Open, content: Content) -> int | str | None:
        self._open[number] = found
        self.asked.set()
        try:
            await self._post(content, number)
            async with asyncio.timeout(self._patience):
                return await found.answer
        except TimeoutError:
            return None
        finally:
            del self._open[number]
            if not self._open:
                self.asked.clear()
            if content.buttons:
                self._closed(number, content, _decision(found))


def _opened(whom: str, choices: tuple[str, ...]) -> _Open:
    return _Open(whom, choices, asyncio.get_running_loop().create_future())


def _may_answer(found: _Open, by: str, *, owner: bool) -> bool:
    """Return whether this person may answer; a sender without an id never is the one who was asked."""
    return owner or is_same_sender(by, found.whom)


def _decision(found: _Open) -> str:
    """Return what is to be seen of a question that is over."""
    if not found.answer.done() or found.answer.cancelled():
        return "*This question is no longer open.*"
    answer = found.answer.result()
    return f"▸ **{found.choices[answer]}**" if isinstance(answer, int) else "▸ *answered*"


def _settle(found: _Open, answer: int | str) -> bool:
    if found.answer.done():
        return False
    found.answer.set_result(answer)
    return True
