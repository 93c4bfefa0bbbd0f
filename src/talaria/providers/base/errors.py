"""Translate a provider's errors by status and machine-readable code."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import msgspec
from msgspec import Struct

from talaria.core.errors import (
    BadKey,
    ContextTooLong,
    MalformedReply,
    ModelRefused,
    ModelUnknown,
    NoCredit,
    ProviderBusy,
    ProviderError,
    ProviderOverloaded,
    WrongProtocol,
)

BY_CODE: Mapping[str, type[ProviderError]] = {
    "rate_limit_exceeded": ProviderBusy,
    "rate_limit_error": ProviderBusy,
    "slow_down": ProviderBusy,
    "ramp_limit_exceeded": ProviderBusy,
    "server_is_overloaded": ProviderOverloaded,
    "server_error": ProviderOverloaded,
    "service_unavailable_error": ProviderOverloaded,
    "overloaded_error": ProviderOverloaded,
    "api_error": ProviderOverloaded,
    "timeout_error": ProviderOverloaded,
    "context_length_exceeded": ContextTooLong,
    "exceed_context_size_error": ContextTooLong,
    "request_too_large": ContextTooLong,
    "invalid_api_key": BadKey,
    "authentication_error": BadKey,
    "permission_error": BadKey,
    "API_KEY_INVALID": BadKey,
    "insufficient_quota": NoCredit,
    "credit_balance_exhausted": NoCredit,
    "billing_hard_limit_reached": NoCredit,
    "billing_not_active": NoCredit,
    "billing_error": NoCredit,
    "enforced_spend_limit_reached": NoCredit,
    "model_not_found": ModelUnknown,
    "unsupported_api_for_model": WrongProtocol,
    "not_found_error": ModelUnknown,
    "content_filter": ModelRefused,
    "content_policy_violation": ModelRefused,
    "image_content_policy_violation": ModelRefused,
    "invalid_prompt": ModelRefused,
    "bio_policy": ModelRefused,
    "misalignment_policy_violation": ModelRefused,
}
BY_STATUS: Mapping[int, type[ProviderError]] = {
    401: BadKey,
    402: NoCredit,
    403: BadKey,
    404: ModelUnknown,
    408: ProviderOverloaded,
    409: ProviderOverloaded,
    413: ContextTooLong,
    429: ProviderBusy,
}

# Anthropic, Mistral, Google, xAI and older vLLM use a generic code for a conversation that is too long, and Anthropic
# for an empty account: only the text differs. It is read only for such a code.
_TOO_LONG = (
    r"(?i)prompt is too long|context (length|window|size)|maximum prompt length|input token count|too large for model"
)
_NO_CREDIT = r"(?i)credit balance is too low|specified (workspace )?API usage limits"


def make_response_error(
    provider: str, status: int, body: bytes, headers: Mapping[str, str], now: datetime
) -> ProviderError:
    """Return the error for an HTTP response with this ``status``."""
    complaint = read_complaint(body)
    kind = _choose_error_type(complaint, status)
    message = f"{provider}: HTTP {status} {complaint.summarize(body)}"
    if kind is ProviderBusy:
        return ProviderBusy(message, retry_after=complaint.wait() or wait_of(headers, now), status=status)
    return kind(message, status=status)


def make_stream_error(provider: str, complaint: "Complaint") -> ProviderError:
    """Return the error for a complaint inside a reply, which has no status unless its code is one."""
    kind = _choose_error_type(complaint, complaint.code if isinstance(complaint.code, int) else 500)
    message = f"{provider}: in the stream: {complaint.summarize(b'')}"
    return (
        ProviderBusy(message, retry_after=complaint.wait() or timedelta(0)) if kind is ProviderBusy else kind(message)
    )


class Detail(Struct):
    """Details of a complaint: Google's reasons and waits, Anthropic's finer codes."""

    reason: str | None = None
    error_code: str | None = None
    retry_delay: str | None = msgspec.field(name="retryDelay", default=None)


class Metadata(Struct):
    """OpenRouter's additions: ``reasons`` if a moderator declined the input."""

    reasons: list[str] | None = None


class Complaint(Struct):
    """The error object of all three protocols, as far as servers fill it in."""

    message: str | None = None
    type: str | None = None
    code: str | int | None = None
    param: str | None = None
    details: list[Detail] | Detail | None = None
    metadata: Metadata | None = None

    def list_codes(self) -> list[str]:
        """Return every machine-readable code, the finest first."""
        fine = [code for detail in self._list_details() for code in (detail.error_code, detail.reason)]
        return [code for code in (*fine, self.code, self.type) if isinstance(code, str)]

    def wait(self) -> timedelta:
        """Return the wait that Google asks for, or nothing."""
        return next(
            (parse_duration(detail.retry_delay) for detail in self._list_details() if detail.retry_delay), timedelta(0)
        )

    def summarize(self, body: bytes) -> str:
        """Return a summary for the log."""
        message = self.message or body[:300].decode(errors="replace")
        return f"{' '.join(dict.fromkeys(self.list_codes()))}: {message}" if self.list_codes() else message

    def _list_details(self) -> list[Detail]:
        return self.details if isinstance(self.details, list) else [self.details] if self.details else []


class _Envelope(Struct):
    error: Complaint | str


def read_complaint(body: bytes) -> Complaint:
    """Return the content of an error body: in an envelope, in a list of one (Google), or bare (vLLM)."""
    for shape in (_Envelope, tuple[_Envelope], Complaint):
        try:
            found = msgspec.json.decode(body, type=shape)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue
        if isinstance(found, tuple):
            found = found[0]
        if isinstance(found, _Envelope):
            found = Complaint(message=found.error) if isinstance(found.error, str) else found.error
        assert isinstance(found, Complaint)
        return found
    return Complaint()


def wait_of(headers: Mapping[str, str], now: datetime) -> timedelta:
    """Return the wait that the headers ask for; nothing if they don't."""
    if milliseconds := headers.get("retry-after-ms"):
        return _parse_seconds(milliseconds) / 1000
    if header := headers.get("retry-after"):
        return _parse_wait(header, now)
    resets = [
        (headers.get(name.lower().replace("reset", "remaining")), _parse_wait(value, now))
        for name, value in headers.items()
        if "ratelimit" in name.lower() and "reset" in name.lower()
    ]
    spent = [wait for remaining, wait in resets if remaining == "0"]
    return max(spent) if spent else min((wait for _, wait in resets), default=timedelta(0))


def parse_duration(text: str) -> timedelta:
    """Return the duration of ``6m0s``, ``1.5s`` or ``20ms``."""
    units = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
    found = re.findall(r"(?<![\d.])([\d.]+)(ms|h|m|s)", text)
    return timedelta(seconds=sum(_parse_seconds(amount).total_seconds() * units[unit] for amount, unit in found))


def _choose_error_type(complaint: Complaint, status: int) -> type[ProviderError]:
    if complaint.metadata is not None and complaint.metadata.reasons:
        return ModelRefused
    for code in complaint.list_codes():
        if code in BY_CODE:
            return BY_CODE[code]
    if status in BY_STATUS:
        return BY_STATUS[status]
    if complaint.param == "input_tokens" or re.search(_TOO_LONG, complaint.message or ""):
        return ContextTooLong
    if re.search(_NO_CREDIT, complaint.message or ""):
        return NoCredit
    if status >= 500:
        return ProviderOverloaded
    return ModelRefused if status >= 400 else MalformedReply


def _parse_wait(text: str, now: datetime) -> timedelta:
    """Return the wait in a header: seconds, a duration, a time since 1970, or a date."""
    if re.fullmatch(r"[\d.]+", text):
        number = _parse_seconds(text)
        is_moment = number > timedelta(days=3650)
        return max(_compute_time_until(number, now), timedelta(0)) if is_moment else number
    if re.fullmatch(r"([\d.]+(ms|h|m|s))+", text):
        return parse_duration(text)
    try:
        when = datetime.fromisoformat(text) if text[:1].isdigit() else _parse_date(text)
    except ValueError:
        return timedelta(0)
    return max((when if when.tzinfo else when.replace(tzinfo=UTC)) - now, timedelta(0))


def _parse_date(text: str) -> datetime:
    # Few servers send dates here, and the parser takes longer to import than all other error handling.
    from email.utils import parsedate_to_datetime  # noqa: PLC0415 (loaded when a server sends a date)

    return parsedate_to_datetime(text)


def _compute_time_until(since_1970: timedelta, now: datetime) -> timedelta:
    in_milliseconds = since_1970 > timedelta(days=365_000)
    return (since_1970 / 1000 if in_milliseconds else since_1970) - timedelta(seconds=now.timestamp())


def _parse_seconds(text: str) -> timedelta:
    try:
        return timedelta(seconds=float(text))
    except (ValueError, OverflowError):
        return timedelta(0)
