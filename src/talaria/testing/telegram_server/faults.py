"""Faults on demand: errors, floods, missing answers, broken connections."""

import asyncio
from typing import Literal

from msgspec import Struct

from talaria.testing.telegram_server.refusals import Fail, flooded

Loss = Literal["hang", "drop"]


class BrokenMethod(Struct):
    """A method that is broken for so many calls; ``done``: it takes effect and only the answer is lost."""

    method: str
    times: float
    fail: Fail | None = None
    loss: Loss | None = None
    done: bool = False

    def concerns(self, method: str) -> bool:
        """Return whether a call of this method meets the fault."""
        return self.times > 0 and self.method.lower() in ("*", method.lower())


class Faults:
    """The faults requested by tests."""

    def __init__(self) -> None:
        self._broken: list[BrokenMethod] = []
        self._allowed: float = float("inf")
        self._wait = 0
        self._until: float | None = None

    def add(self, broken: BrokenMethod) -> None:
        """Break a method."""
        self._broken.append(broken)

    def flood(self, *, after: int, retry_after: int) -> None:
        """Refuse messages after so many, for so many seconds from the first refusal on."""
        self._allowed, self._wait, self._until = after, retry_after, None

    def clear(self) -> None:
        """Clear all faults."""
        self._broken.clear()
        self._allowed, self._until = float("inf"), None

    def take(self, method: str) -> BrokenMethod | None:
        """Return the fault that a call meets, and count it."""
        found = next((one for one in self._broken if one.concerns(method)), None)
        if found is not None:
            found.times -= 1
        return found

    def check_flood(self, method: str) -> None:
        """Count a call that writes, and refuse it while there is a flood."""
        if not method.startswith(("send", "edit")) or method == "sendChatAction":
            return
        if self._allowed > 0:
            self._allowed -= 1
            return
        now = asyncio.get_running_loop().time()
        if self._until is None:
            self._until = now + self._wait
        if now >= self._until:
            self._allowed, self._until = float("inf"), None
            return
        raise flooded(max(1, round(self._until - now + 0.49)))
