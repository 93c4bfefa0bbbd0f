"""Discord's error answers."""

from typing import Any


class DiscordRefusal(Exception):
    """An error answer."""

    def __init__(self, status: int, code: int, message: str, **more: Any) -> None:
        super().__init__(message)
        self.status = status
        self.body: dict[str, Any] = {"message": message, "code": code, **more}


def unauthorized() -> DiscordRefusal:
    """The token is not known."""
    return DiscordRefusal(401, 0, "401: Unauthorized")


def unknown(what: str) -> DiscordRefusal:
    """There is no such thing."""
    codes = {"Channel": 10003, "Message": 10008, "Emoji": 10014, "Interaction": 10062, "Application": 10002}
    return DiscordRefusal(404, codes[what], f"Unknown {what}")


def forbidden() -> DiscordRefusal:
    """The bot may not do this."""
    return DiscordRefusal(403, 50013, "Missing Permissions")


def bad_form(field: str, message: str) -> DiscordRefusal:
    """A request is not as it should be."""
    errors = {field: {"_errors": [{"code": "BASE_TYPE_BAD_LENGTH", "message": message}]}}
    return DiscordRefusal(400, 50035, "Invalid Form Body", errors=errors)
