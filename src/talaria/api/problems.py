"""What a client is told when something cannot be done: errors of OpenAI's shape, each with its status."""

from collections.abc import Mapping
from http import HTTPStatus

import msgspec
from msgspec import Struct

from talaria.core.errors import Ambiguous, NotFound, ProviderBusy, ProviderError, Refused, StoreError, TalariaError

INVALID, SERVER = "invalid_request_error", "server_error"
NO_WORDS = "A character of the value 0 is not taken here."  # nor by PostgreSQL
_AGAIN_SOON = 2


class ErrorBody(Struct, frozen=True):
    """What went wrong; ``param`` is the field that it is about."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorAnswer(Struct, frozen=True):
    """An error as clients expect it."""

    error: ErrorBody


class Problem(TalariaError):
    """Ends a request with an error; ``headers`` go out with it."""

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

    @property
    def answer(self) -> ErrorAnswer:
        """What the body says."""
        return ErrorAnswer(ErrorBody(str(self), self.kind, self.param, self.code))


class ClientGone(TalariaError):
    """Whoever asked does not listen any more."""


class ServerEnds(Refused):
    """The server is about to end, and begins nothing any more."""


def missing(message: str, *, param: str | None = None, code: str = "not_found") -> Problem:
    """Return what is said of something that is not there."""
    return Problem(message, HTTPStatus.NOT_FOUND, param=param, code=code)


def unsupported(param: str, message: str) -> Problem:
    """Return what is said of a field that cannot be honoured: better refused than left unheard."""
    return Problem(message, param=param, code="unsupported_parameter")


def server_problem(message: str, status: int = HTTPStatus.INTERNAL_SERVER_ERROR, *, code: str | None = None) -> Problem:
    """Return a failure on this side that was tried again often enough: official clients are told not to."""
    return Problem(message, status, kind=SERVER, code=code, headers={"x-should-retry": "false"})


def too_many(message: str, *, seconds: int, code: str) -> Problem:
    """Return what is said to whoever asks too often, or for too much at once."""
    headers = {"retry-after": str(max(seconds, 1))}
    return Problem(message, HTTPStatus.TOO_MANY_REQUESTS, kind="rate_limit_error", code=code, headers=headers)


def conflict(message: str, *, code: str = "conflict") -> Problem:
    """Return what is said where something else has to end first."""
    headers = {"retry-after": str(_AGAIN_SOON)}
    return Problem(message, HTTPStatus.CONFLICT, kind="conflict_error", code=code, headers=headers)


def _server_ends() -> Problem:
    headers = {"retry-after": str(_AGAIN_SOON)}
    message = "The server ends; ask again in a moment."
    return Problem(message, HTTPStatus.SERVICE_UNAVAILABLE, kind=SERVER, code="ending", headers=headers)


def problem_of(error: TalariaError) -> Problem:
    """Return what a client is told of an error; the owner's own words where it is one of asking."""
    match error:
        case Problem():
            return error
        case NotFound():
            return missing(str(error))
        case Ambiguous():
            return Problem(str(error), HTTPStatus.CONFLICT, code="ambiguous")
        case ServerEnds():
            return _server_ends()
        case Refused():
            return conflict(str(error))
        case StoreError():
            again = {"retry-after": str(_AGAIN_SOON)}
            return Problem(error.public, HTTPStatus.SERVICE_UNAVAILABLE, kind=SERVER, code="store", headers=again)
        case ProviderBusy():
            return too_many(error.public, seconds=round(error.retry_after.total_seconds()), code="model_busy")
        case ProviderError():
            return server_problem(error.public, HTTPStatus.BAD_GATEWAY, code="model")
        case _:
            return server_problem(error.public)


def bad_json(error: Exception) -> Problem:
    """Return what is said of a body that cannot be read, with the field that is wrong, if it is one."""
    text = str(error)
    sentence, _, place = text.partition(" - at `")
    if isinstance(error, msgspec.ValidationError):
        param = place.rstrip("`").removeprefix("$").removeprefix(".") or None
        where = f" in `{param}`" if param else ""
        return Problem(f"The body does not fit{where}: {_lowered(sentence)}.", param=param, code="invalid_value")
    return Problem(f"The body is not JSON: {_lowered(sentence)}.", code="invalid_json")


def _lowered(sentence: str) -> str:
    """Return a sentence to stand behind a colon; an abbreviation at its beginning stays one."""
    first = sentence[:1] if sentence[1:2].isupper() else sentence[:1].lower()
    return first + sentence[1:].rstrip(".")
