"""The errors and the list of models that OpenAI's two protocols share."""

from collections.abc import Mapping, Sequence

from talaria.testing.model_server.faults import Fail
from talaria.testing.model_server.wire import Json

_INVALID = "invalid_request_error"
_BY_STATUS: Mapping[int, tuple[str, str | None, str]] = {
    400: (_INVALID, None, "Invalid request."),
    401: (_INVALID, "invalid_api_key", "Incorrect API key provided."),
    403: (_INVALID, "unsupported_country_region_territory", "Country, region, or territory not supported"),
    404: (_INVALID, None, "Not found."),
    429: ("requests", "rate_limit_exceeded", "Rate limit reached for requests."),
    503: ("server_error", None, "The server is overloaded or not ready yet."),
}
_OTHER = ("server_error", None, "The server had an error while processing your request.")
_QUOTA = "insufficient_quota"


def error_object(fail: Fail) -> Json:
    """Return what stands behind ``error`` in a body."""
    usual, code, message = _BY_STATUS.get(fail.status, _OTHER)
    return {
        "message": fail.message or message,
        "type": _QUOTA if fail.kind == _QUOTA else usual,
        "param": fail.param,
        "code": fail.kind or code,
    }


def model_list(names: Sequence[str]) -> Json:
    """Return the body of a list of models."""
    return {
        "object": "list",
        "data": [{"id": name, "object": "model", "created": 1735689600, "owned_by": "talaria"} for name in names],
    }
