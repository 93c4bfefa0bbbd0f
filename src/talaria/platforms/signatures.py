"""Signatures of webhooks: comparison in constant time, the replay window, and message authentication codes."""

import base64
import hmac
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Literal

REPLAY_WINDOW = timedelta(minutes=5)


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
