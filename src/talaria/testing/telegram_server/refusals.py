"""Error answers of the Bot API."""

from msgspec import Struct


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
