"""Signature schemes: signatures computed by hand here are accepted, and variations of them are refused."""

import hashlib
import hmac
from datetime import UTC, datetime, timedelta

import pytest
from tests.platforms.webhook.webhook_peers import SECRET, standard

from talaria.platforms.signatures import BadSignature, Scheme, make_signature_headers, verify_signature

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
WHEN = int(NOW.timestamp())
KEY = "s3cret"
BODY = b'{"zen": "\xe2\x9c\xa8"}'


def hexed(content: bytes, key: str = KEY) -> str:
    return hmac.new(key.encode(), content, hashlib.sha256).hexdigest()


def stripe(at: int, key: str = KEY) -> str:
    return f"t={at},v0=old,v1={'0' * 64},v1={hexed(f'{at}.'.encode() + BODY, key)}"


def slack(at: int, key: str = KEY) -> dict[str, str]:
    return {
        "x-slack-request-timestamp": str(at),
        "x-slack-signature": f"v0={hexed(f'v0:{at}:'.encode() + BODY, key)}",
    }


GOOD: list[tuple[Scheme, dict[str, str], str]] = [
    ("github", {"x-hub-signature-256": f"sha256={hexed(BODY)}"}, ""),
    ("github", {"x-gitea-signature": hexed(BODY)}, "X-Gitea-Signature"),
    ("stripe", {"stripe-signature": stripe(WHEN)}, ""),
    ("slack", slack(WHEN), ""),
    ("bearer", {"authorization": f"Bearer {KEY}"}, ""),
    ("bearer", {"x-gitlab-token": KEY}, "X-Gitlab-Token"),
    ("standard", standard(BODY, "m1", secret=KEY, at=WHEN), ""),
]


def passes(
    scheme: Scheme,
    headers: dict[str, str],
    *,
    key: str = KEY,
    body: bytes = BODY,
    header: str = "",
    at: datetime = NOW,
) -> bool:
    try:
        verify_signature(scheme, key, headers, body, header=header, now=at, tolerance=timedelta(minutes=5))
    except BadSignature:
        return False
    return True


@pytest.mark.parametrize(("scheme", "headers", "header"), GOOD)
def test_only_signatures_made_with_the_secret_are_accepted(
    scheme: Scheme, headers: dict[str, str], header: str
) -> None:
    assert passes(scheme, headers, header=header)
    assert not passes(scheme, headers, header=header, key="another")
    assert not passes(scheme, {}, header=header)
    assert not passes(scheme, dict.fromkeys(headers, ""), header=header)
    assert not passes(scheme, {name: value[:-1] for name, value in headers.items()}, header=header)
    assert not passes(scheme, {name: f"{value} é" for name, value in headers.items()}, header=header)
    if scheme != "bearer":
        assert not passes(scheme, headers, header=header, body=BODY + b" ")


@pytest.mark.parametrize(
    ("scheme", "headers"),
    [
        ("stripe", {"stripe-signature": stripe(WHEN)}),
        ("slack", slack(WHEN)),
        ("standard", standard(BODY, "m1", secret=KEY, at=WHEN)),
    ],
)
def test_signatures_outside_the_time_tolerance_are_refused(scheme: Scheme, headers: dict[str, str]) -> None:
    for seconds in (-301, 301):
        assert not passes(scheme, headers, at=NOW + timedelta(seconds=seconds))
    for seconds in (-299, 299):
        assert passes(scheme, headers, at=NOW + timedelta(seconds=seconds))


@pytest.mark.parametrize("when", ["", "soon", "-5", "१२३", "9" * 30, f"{WHEN}.0"])
def test_invalid_timestamp_is_refused(when: str) -> None:
    mac = hexed(f"v0:{when}:".encode() + BODY)
    assert not passes("slack", {"x-slack-request-timestamp": when, "x-slack-signature": f"v0={mac}"})


def test_id_is_signed_and_one_of_several_signatures_must_match() -> None:
    headers = standard(BODY, "m1", at=WHEN)
    assert not passes("standard", {**headers, "webhook-id": "m2"}, key=SECRET)
    signatures = f"v1a,AAAA v1,AAAA {headers['webhook-signature']}"
    assert passes("standard", {**headers, "webhook-signature": signatures}, key=SECRET)


def test_replies_are_signed_in_the_standard_scheme() -> None:
    for secret in (SECRET, "plain words"):
        assert make_signature_headers(secret, "k", NOW, BODY) == standard(BODY, "k", secret=secret, at=WHEN)
    odd = "whsec_is not base64!"
    assert passes("standard", make_signature_headers(odd, "k", NOW, BODY), key=odd)
