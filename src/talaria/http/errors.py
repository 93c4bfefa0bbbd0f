"""Error responses: their HTTP status, code and headers. Each front door renders them in its own format."""

from collections.abc import Mapping
from http import HTTPStatus

import msgspec

from talaria.core.errors import Ambiguous, NotFound, ProviderBusy, ProviderError, Refused, StoreError, TalariaError

INVALID, SERVER = "invalid_request_error", "server_error"
NUL_REFUSED = "Null characters (U+0000) are not allowed."  # nor by PostgreSQL
_RETRY_AFTER = 2


class Problem(TalariaError):
    """An error response: ``kind`` is its family, ``param`` the field concerned; ``headers`` are sent with it."""

    def __init__(
        self,
        message: str,
        status: int = HTTPStatus.BAD_REQUEST,
        *,
        kind: str = INVALID,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = int(status)
        self.kind = kind
        self.param = param
        self.code = code
        self.headers = dict(headers or {})


class ClientGone(TalariaError):
    """The client has disconnected."""


class ServerStopping(Refused):
    """The server is shutting down and accepts no new work."""


def make_not_found(message: str, *, param: str | None = None, code: str = "not_found") -> Problem:
    """Return the error for something that doesn't exist."""
    return Problem(message, HTTPStatus.NOT_FOUND, param=param, code=code)


def make_unsupported(param: str, message: str) -> Problem:
    """Return the error for an unsupported field, which is refused instead of ignored."""
    return Problem(message, param=param, code="unsupported_parameter")


def make_server_problem(
    message: str, status: int = HTTPStatus.INTERNAL_SERVER_ERROR, *, code: str | None = None
) -> Problem:
    """Return an error for a failure that was already retried here; official clients don't retry it."""
    return Problem(message, status, kind=SERVER, code=code, headers={"x-should-retry": "false"})


def make_too_many(message: str, *, seconds: int, code: str) -> Problem:
    """Return the error for too many requests."""
    headers = {"retry-after": str(max(seconds, 1))}
    return Problem(message, HTTPStatus.TOO_MANY_REQUESTS, kind="rate_limit_error", code=code, headers=headers)


def make_conflict(message: str, *, code: str = "conflict") -> Problem:
    """Return the error for something that has to wait for another operation."""
    headers = {"retry-after": str(_RETRY_AFTER)}
    return Problem(message, HTTPStatus.CONFLICT, kind="conflict_error", code=code, headers=headers)


def _make_server_stopping() -> Problem:
    headers = {"retry-after": str(_RETRY_AFTER)}
    message = "The server is shutting down. Try again in a moment."
    return Problem(message, HTTPStatus.SERVICE_UNAVAILABLE, kind=SERVER, code="ending", headers=headers)


def to_problem(error: TalariaError) -> Problem:
    """Return the response for an error; with its full message if the request caused it."""
    match error:
        case Problem():
            return error
        case NotFound():
            return make_not_found(str(error))
        case Ambiguous():
            return Problem(str(error), HTTPStatus.CONFLICT, code="ambiguous")
        case ServerStopping():
            return _make_server_stopping()
        case Refused():
            return make_conflict(str(error))
        case StoreError():
            again = {"retry-after": str(_RETRY_AFTER)}
            return Problem(error.public, HTTPStatus.SERVICE_UNAVAILABLE, kind=SERVER, code="store", headers=again)
        case ProviderBusy():
            return make_too_many(error.public, seconds=round(error.retry_after.total_seconds()), code="model_busy")
        case ProviderError():
            return make_server_problem(error.public, HTTPStatus.BAD_GATEWAY, code="model")
        case _:
            return make_server_problem(error.public)


def make_bad_json(error: Exception) -> Problem:
    """Return the error for an unreadable body, naming the invalid field if there is one."""
    text = str(error)
    sentence, _, path = text.partition(" - at `")
    if isinstance(error, msgspec.ValidationError):
        param = path.rstrip("`").removeprefix("$").removeprefix(".") or None
        where = f" in `{param}`" if param else ""
        return Problem(f"The body is invalid{where}: {_lower_first(sentence)}.", param=param, code="invalid_value")
    return Problem(f"The body is not JSON: {_lower_first(sentence)}.", code="invalid_json")


def _lower_first(sentence: str) -> str:
    """Return a sentence to follow a colon; a leading abbreviation keeps its capitals."""
    first = sentence[:1] if sentence[1:2].isupper() else sentence[:1].lower()
    return first + sentence[1:].rstrip(".")
