"""Whether a post comes from whom it should, in the ways that programs sign; and how ours are signed."""

import base64
import binascii
import hmac
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Literal

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
    """What arrived does not prove that its sender has the secret; the sentence is for the log."""


def check(
    scheme: Scheme,
    secret: str,
    headers: Mapping[str, str],
    body: bytes,
    *,
    header: str = "",
    now: datetime,
    tolerance: timedelta,
) -> None:
    """Raise `BadSignature` unless a post is signed; ``headers`` go by small letters, ``header`` names another one.

    ``standard`` is that of standardwebhooks.com, which also signs the id and the time. A time that is signed may be
    off by ``tolerance``, so that nobody can send the same again much later.
    """
    match scheme:
        case "standard":
            given = headers.get("webhook-timestamp", "")
            content = f"{headers.get('webhook-id', '')}.{given}.".encode() + body
            mac = base64.b64encode(_mac(_key(secret), content)).decode()
            signatures = [word[3:] for word in headers.get("webhook-signature", "").split() if word.startswith("v1,")]
            _compare(mac, signatures)
            _be_recent(given, now, tolerance)
        case "github":
            signature = headers.get((header or "x-hub-signature-256").lower(), "")
            _compare(_mac(secret.encode(), body).hex(), [signature.removeprefix("sha256=")])
        case "stripe":
            pairs = [pair.strip().partition("=")[::2] for pair in headers.get("stripe-signature", "").split(",")]
            given = next((value for name, value in pairs if name == "t"), "")
            mac = _mac(secret.encode(), f"{given}.".encode() + body).hex()
            _compare(mac, [value for name, value in pairs if name == "v1"])
            _be_recent(given, now, tolerance)
        case "slack":
            given = headers.get("x-slack-request-timestamp", "")
            mac = _mac(secret.encode(), f"v0:{given}:".encode() + body).hex()
            _compare(f"v0={mac}", [headers.get("x-slack-signature", "")])
            _be_recent(given, now, tolerance)
        case "bearer":
            given = headers.get((header or "authorization").lower(), "")
            kind, _, token = given.partition(" ")
            _compare(secret, [token.strip() if kind.lower() == "bearer" else given])
        case "none":
            pass


def has_signature(scheme: Scheme, headers: Mapping[str, str], *, header: str = "") -> bool:
    """Tell whether a post has the header of a signature at all: what has none need not be received."""
    name = header.lower() if header and scheme in ("github", "bearer") else _HEADERS[scheme]
    return not name or bool(headers.get(name))


def signed(secret: str, message_id: str, now: datetime, body: bytes) -> dict[str, str]:
    """Return the headers that prove to a receiver that a post is ours, in the way of ``standard``."""
    time = str(int(now.timestamp()))
    mac = _mac(_key(secret), f"{message_id}.{time}.".encode() + body)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": time,
        "webhook-signature": f"v1,{base64.b64encode(mac).decode()}",
    }


def _compare(expected: str, given: Iterable[str]) -> None:
    """Look at all of them, each in a time that does not depend on how much of it is right."""
    same = [hmac.compare_digest(expected.encode(), one.encode()) for one in given]
    if not same:
        raise BadSignature("it has no signature")
    if not any(same):
        raise BadSignature("its signature is not that of the secret")


def _be_recent(given: str, now: datetime, tolerance: timedelta) -> None:
    if not (given.isascii() and given.isdecimal() and len(given) < 16):
        raise BadSignature("it does not say when it was signed")
    off = abs(int(given) - now.timestamp())
    if off > tolerance.total_seconds():
        raise BadSignature(f"it was signed {off:.0f} s off our clock, and {tolerance.total_seconds():.0f} are allowed")


def _mac(key: bytes, content: bytes) -> bytes:
    return hmac.new(key, content, sha256).digest()


def _key(secret: str) -> bytes:
    """Return the bytes of a secret: behind ``whsec_`` they are written in base64."""
    if secret.startswith(_PREFIX):
        try:
            return base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
        except binascii.Error:
            pass
    return secret.encode()
