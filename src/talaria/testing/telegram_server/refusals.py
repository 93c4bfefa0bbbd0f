"""Error answers of the Bot API, and faults on demand: floods, missing answers, broken connections."""

import asyncio
from typing import Literal

from msgspec import Struct

Loss = Literal["hang", "drop"]


class Refusal(Exception):
    """An error answer: code, description and machine-readable parameters."""

    def __init__(self, code: int, description: str, **parameters: int) -> None:
        super().__init__(description)
        self.code = code
        self.description = description
        self.parameters = parameters

    def body(self) -> dict[str, object]:
        """Return the answer in Telegram's shape."""
        answer: dict[str, object] = {"ok": False, "error_code": self.code, "description": self.description}
        if self.parameters:
            answer["parameters"] = self.parameters
        return answer


class Fail(Struct, frozen=True):
    """An error requested by a test; its description follows from the status unless given."""

    status: int
    description: str = ""

    def refusal(self) -> Refusal:
        """Return the error as the server raises it."""
        usual = {400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found", 409: "Conflict"}
        usual |= {429: "Too Many Requests", 500: "Internal Server Error", 502: "Bad Gateway"}
        return Refusal(self.status, self.description or usual.get(self.status, "Error"))


def bad_request(what: str) -> Refusal:
    """Return a 400."""
    return Refusal(400, f"Bad Request: {what}")


def upgraded(chat_id: int) -> Refusal:
    """Return a 400 that says which chat a group has become."""
    return Refusal(400, "Bad Request: group chat was upgraded to a supergroup chat", migrate_to_chat_id=chat_id)


def forbidden(what: str) -> Refusal:
    """Return a 403."""
    return Refusal(403, f"Forbidden: {what}")


def conflict(what: str) -> Refusal:
    """Return a 409."""
    return Refusal(409, f"Conflict: {what}")


def flooded(seconds: int) -> Refusal:
    """Return a 429 that says how long to wait."""
    return Refusal(429, f"Too Many Requests: retry after {seconds}", retry_after=seconds)


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
