"""Signatures of webhooks: comparison in constant time, the replay window, and the common schemes."""

import base64
import binascii
import hmac
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Literal

REPLAY_WINDOW = timedelta(minutes=5)
Scheme = Literal["standard", "github", "stripe", "slack", "bearer", "none"]
_PREFIX = "whsec_"
_HEADERS: Mapping[Scheme, str] = {
    "standard": "webhook-signature",
    "github": "x-hub-signature-256",
    "stripe": "stripe-signature",
    "slack": "x-slack-signature",
    "bearer": "authorization",
    "none": "",
}


class BadSignature(Exception):
    """The post doesn't prove that its sender has the secret; the sentence is for the log."""


def sign(secret: str | bytes, content: bytes, *, algorithm: Literal["sha1", "sha256"] = "sha256") -> bytes:
    """Return the message authentication code of a content."""
    return hmac.new(secret.encode() if isinstance(secret, str) else secret, content, algorithm).digest()


def sign_base64(secret: str | bytes, content: bytes, *, algorithm: Literal["sha1", "sha256"] = "sha256") -> str:
    """Return the message authentication code in base64."""
    return base64.b64encode(sign(secret, content, algorithm=algorithm)).decode()


def check_signatures(expected: str, given: Iterable[str]) -> None:
    """Raise `BadSignature` unless one of them is the expected one; all are compared in constant time."""
    matches = [hmac.compare_digest(expected.encode(), one.encode(errors="replace")) for one in given if one]
    if not matches:
        raise BadSignature("it is missing")
    if not any(matches):
        raise BadSignature("it doesn't match the secret")


def check_timestamp(given: str, now: datetime, tolerance: timedelta = REPLAY_WINDOW) -> None:
    """Raise `BadSignature` if a signed time in seconds is missing, or too far from ours: a replay."""
    if not (given.isascii() and given.isdecimal() and len(given) < 16):
        raise BadSignature("it has no timestamp")
    drift = abs(int(given) - now.timestamp())
    if drift > tolerance.total_seconds():
        raise BadSignature(
            f"its timestamp is {drift:.0f} s off our clock; {tolerance.total_seconds():.0f} s are allowed"
        )


def verify_signature(
    scheme: Scheme,
    secret: str,
    headers: Mapping[str, str],
    body: bytes,
    *,
    header: str = "",
    now: datetime,
    tolerance: timedelta,
) -> None:
    """Raise `BadSignature` unless a post is signed; ``headers`` are in lower case, ``header`` names another one.

    ``standard`` is that of standardwebhooks.com, which also signs the id and the time. A signed time may be off by
    ``tolerance``, which prevents later replays.
    """
    match scheme:
        case "standard":
            given = headers.get("webhook-timestamp", "")
            content = f"{headers.get('webhook-id', '')}.{given}.".encode() + body
            mac = sign_base64(_decode_key(secret), content)
            signatures = [word[3:] for word in headers.get("webhook-signature", "").split() if word.startswith("v1,")]
            check_signatures(mac, signatures)
            check_timestamp(given, now, tolerance)
        case "github":
            signature = headers.get((header or "x-hub-signature-256").lower(), "")
            check_signatures(sign(secret, body).hex(), [signature.removeprefix("sha256=")])
        case "stripe":
            pairs = [pair.strip().partition("=")[::2] for pair in headers.get("stripe-signature", "").split(",")]
            given = next((value for name, value in pairs if name == "t"), "")
            mac = sign(secret, f"{given}.".encode() + body).hex()
            check_signatures(mac, [value for name, value in pairs if name == "v1"])
            check_timestamp(given, now, tolerance)
        case "slack":
            given = headers.get("x-slack-request-timestamp", "")
            mac = sign(secret, f"v0:{given}:".encode() + body).hex()
            check_signatures(f"v0={mac}", [headers.get("x-slack-signature", "")])
            check_timestamp(given, now, tolerance)
        case "bearer":
            given = headers.get((header or "authorization").lower(), "")
            kind, _, token = given.partition(" ")
            check_signatures(secret, [token.strip() if kind.lower() == "bearer" else given])
        case "none":
            pass


def has_signature(scheme: Scheme, headers: Mapping[str, str], *, header: str = "") -> bool:
    """Return whether a post has a signature header at all: without one its body need not be received."""
    name = header.lower() if header and scheme in ("github", "bearer") else _HEADERS[scheme]
    return not name or bool(headers.get(name))


def make_signature_headers(secret: str, message_id: str, now: datetime, body: bytes) -> dict[str, str]:
    """Return the headers that sign our posts, in the ``standard`` scheme."""
    time = str(int(now.timestamp()))
    mac = sign_base64(_decode_key(secret), f"{message_id}.{time}.".encode() + body)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": time,
        "webhook-signature": f"v1,{mac}",
    }


def _decode_key(secret: str) -> bytes:
    """Return the bytes of a secret: after ``whsec_`` they are base64."""
    if secret.startswith(_PREFIX):
        try:
            return base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
        except binascii.Error:
            pass
    return secret.encode()
