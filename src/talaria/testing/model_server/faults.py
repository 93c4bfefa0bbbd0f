"""Faults of model providers, in each protocol's own form."""

from dataclasses import KW_ONLY, dataclass

from talaria.testing.model_server.exchange import ProtocolName, Say

_SAMPLE_REPLY = Say("These are some good words that come before the fault.")


@dataclass(frozen=True, slots=True)
class Fail:
    """An error in the vendor's form; ``kind`` is OpenAI's ``code`` and Anthropic's ``type``.

    Omitted values follow from the status. ``retry_after`` is in seconds.
    """

    status: int
    _: KW_ONLY
    kind: str | None = None
    message: str | None = None
    param: str | None = None
    retry_after: float | None = None

    def on(self, protocol: ProtocolName) -> "Fail":
        """Return the error for a protocol: the same for all."""
        return self


@dataclass(frozen=True, slots=True)
class VendorFail:
    """The same error as each vendor reports it."""

    chat: Fail
    responses: Fail
    anthropic: Fail

    def on(self, protocol: ProtocolName) -> Fail:
        """Return the error for a protocol."""
        return {"chat": self.chat, "responses": self.responses, "anthropic": self.anthropic}[protocol]


@dataclass(frozen=True, slots=True)
class CutOff:
    """Close the connection after so many pieces of the reply; after none, before any answer."""

    say: Say = _SAMPLE_REPLY
    after: int = 3


@dataclass(frozen=True, slots=True)
class Silence:
    """Keep the connection open but send nothing after so many pieces; after none, not even a status."""

    say: Say = _SAMPLE_REPLY
    after: int = 3


@dataclass(frozen=True, slots=True)
class Garbage:
    """Send broken JSON: in a stream after so many good pieces, else as the whole body."""

    after: int = 0
    say: Say = _SAMPLE_REPLY


@dataclass(frozen=True, slots=True)
class Collapse:
    """Report an error inside a stream that started well, in the protocol's own way."""

    say: Say = _SAMPLE_REPLY
    after: int = 3
    fail: Fail | VendorFail = Fail(500)


@dataclass(frozen=True, slots=True)
class WrongType:
    """Answer 200 with a web page, as a captive portal or a misconfigured proxy does."""

    page: str = "<!doctype html><title>Welcome</title><h1>Please sign in</h1>"


Fault = Fail | VendorFail | CutOff | Silence | Garbage | Collapse | WrongType


def overloaded() -> VendorFail:
    """The provider has too much to do: 503, at Anthropic 529."""
    busy = Fail(503)
    return VendorFail(busy, busy, Fail(529))


def context_too_long() -> VendorFail:
    """The prompt does not fit into the model's window."""
    code = "context_length_exceeded"
    window = "This model's maximum context length is 128000 tokens. However, your messages resulted in 140000 tokens."
    return VendorFail(
        Fail(400, kind=code, param="messages", message=f"{window} Please reduce the length of the messages."),
        Fail(400, kind=code, param="input", message="Your input exceeds the context window of this model."),
        Fail(400, message="prompt is too long: 214000 tokens > 200000 maximum"),
    )


def bad_key() -> VendorFail:
    """The key is not known."""
    unknown = Fail(401)
    return VendorFail(unknown, unknown, unknown)


def no_credit() -> VendorFail:
    """The account is used up: 429 with ``insufficient_quota``, at Anthropic 402 with ``billing_error``."""
    text = "You exceeded your current quota, please check your plan and billing details."
    used_up = Fail(429, kind="insufficient_quota", message=text)
    return VendorFail(used_up, used_up, Fail(402))


def refused() -> VendorFail:
    """A content filter declines the request; for a reply that ends so, use ``Say(stop="refused")``."""
    filtered = Fail(400, kind="content_filter", param="prompt", message="The response was filtered by our policy.")
    flagged = Fail(400, kind="invalid_prompt", message="Invalid prompt: it was flagged by our usage policy.")
    return VendorFail(filtered, flagged, Fail(400, message="Output blocked by content filtering policy"))


def model_unknown() -> VendorFail:
    """The error for an unknown model."""
    text = "The model does not exist or you do not have access to it."
    missing = Fail(404, kind="model_not_found", message=text)
    return VendorFail(missing, missing, Fail(404, message="model: no such model"))
