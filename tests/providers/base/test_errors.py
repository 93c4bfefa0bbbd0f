"""Error responses of providers and the exceptions they become."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from talaria.core.errors import (
    BadKey,
    ContextTooLong,
    ModelRefused,
    ModelUnknown,
    NoCredit,
    ProviderBusy,
    ProviderError,
    ProviderOverloaded,
)
from talaria.providers.base.errors import make_response_error, parse_duration, wait_of

NOW = datetime(2026, 1, 2, 12, tzinfo=UTC)
SOON = NOW + timedelta(seconds=30)


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (429, '{"error":{"code":"rate_limit_exceeded","type":"requests","message":"Slow"}}', ProviderBusy),
        (429, '{"error":{"code":"insufficient_quota","type":"insufficient_quota"}}', NoCredit),
        (
            429,
            '{"type":"error","error":{"type":"rate_limit_error","details":{"error_code":"enforced_spend_limit_reached"}}}',
            NoCredit,
        ),
        (400, '{"error":{"code":"context_length_exceeded"}}', ContextTooLong),
        (500, '{"error":{"code":500,"type":"exceed_context_size_error","n_ctx":256}}', ContextTooLong),
        (400, '{"error":{"code":400,"type":"BadRequestError","param":"input_tokens"}}', ContextTooLong),
        (
            400,
            '{"object":"error","type":"BadRequestError","code":400,"message":"maximum context length is 8"}',
            ContextTooLong,
        ),
        (
            400,
            '{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 9 > 8"}}',
            ContextTooLong,
        ),
        (
            400,
            '{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low"}}',
            NoCredit,
        ),
        (400, '[{"error":{"code":400,"status":"INVALID_ARGUMENT","details":[{"reason":"API_KEY_INVALID"}]}}]', BadKey),
        (401, "", BadKey),
        (402, '{"error":{"code":402,"message":"Insufficient credits"}}', NoCredit),
        (403, '{"error":{"code":403,"message":"flagged","metadata":{"reasons":["violence"]}}}', ModelRefused),
        (404, '{"error":"model not found"}', ModelUnknown),
        (413, '{"type":"error","error":{"type":"request_too_large"}}', ContextTooLong),
        (422, '{"detail":[{"loc":["body"]}]}', ModelRefused),
        (502, "<html>Bad gateway</html>", ProviderOverloaded),
        (529, '{"type":"error","error":{"type":"overloaded_error"}}', ProviderOverloaded),
    ],
)
def test_error_response_becomes_the_matching_exception(status: int, body: str, expected: type[ProviderError]) -> None:
    assert type(make_response_error("test", status, body.encode(), {}, NOW)) is expected


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": format_datetime(SOON, usegmt=True)}, 30),
        ({"retry-after": format_datetime(NOW - timedelta(days=1), usegmt=True)}, 0),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"x-ratelimit-reset-requests": "1s", "x-ratelimit-reset-tokens": "6m0s"}, 1),
        (
            {
                "x-ratelimit-remaining-requests": "5",
                "x-ratelimit-reset-requests": "1s",
                "x-ratelimit-remaining-tokens": "0",
                "x-ratelimit-reset-tokens": "6m0s",
            },
            360,
        ),
        ({"anthropic-ratelimit-requests-reset": "2026-01-02T12:00:30Z"}, 30),
        ({"x-ratelimit-reset": str(int(SOON.timestamp() * 1000))}, 30),
        ({"x-ratelimit-reset": str(int(SOON.timestamp()))}, 30),
        ({"retry-after": "soon"}, 0),
        ({}, 0),
    ],
)
def test_wait_is_read_from_the_rate_limit_headers(headers: dict[str, str], seconds: float) -> None:
    assert wait_of(headers, NOW) == timedelta(seconds=seconds)


def test_wait_is_read_from_the_body_of_google_errors() -> None:
    body = (
        b'[{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","details":[{"@type":"RetryInfo","retryDelay":"36s"}]}}]'
    )
    busy = make_response_error("google", 429, body, {}, NOW)
    assert isinstance(busy, ProviderBusy)
    assert busy.retry_after == timedelta(seconds=36)


def test_durations_in_vendor_notation_are_parsed() -> None:
    assert parse_duration("1h2m3.5s") == timedelta(hours=1, minutes=2, seconds=3.5)
    assert parse_duration("20ms") == timedelta(milliseconds=20)
