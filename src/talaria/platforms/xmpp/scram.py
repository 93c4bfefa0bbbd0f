"""SASL login: SCRAM (RFC 5802 and 7677), in which both sides prove that they know the password, or PLAIN."""

import base64
import binascii
import hashlib
import hmac
import secrets
import unicodedata
from collections.abc import Collection
from typing import Literal

_HASHES: dict[str, Literal["sha512", "sha256", "sha1"]] = {
    "SCRAM-SHA-512": "sha512", "SCRAM-SHA-256": "sha256", "SCRAM-SHA-1": "sha1",
}  # fmt: skip
_MAX_ITERATIONS = 1_000_000
_NO_CHANNEL_BINDING = "n,,"


class LoginRefused(Exception):
    """Error of a server that doesn't prove that it knows the password, or sends nonsense."""


def choose_mechanism(offered: Collection[str]) -> str:
    """Return the best mechanism that a server offers; empty if there is none."""
    return next((one for one in (*_HASHES, "PLAIN") if one in offered), "")


def plain_message(user: str, password: str) -> bytes:
    """Return the message of PLAIN, for servers that store no SCRAM keys; the connection is encrypted."""
    return f"\0{user}\0{password}".encode()


class ScramClient:
    """One login with a SCRAM mechanism."""

    def __init__(self, mechanism: str, user: str, password: str, nonce: str = "") -> None:
        self._hash = _HASHES[mechanism]
        self._password = unicodedata.normalize("NFKC", password).encode()
        self._nonce = nonce or secrets.token_urlsafe(24)
        escaped = unicodedata.normalize("NFKC", user).replace("=", "=3D").replace(",", "=2C")
        self._first = f"n={escaped},r={self._nonce}"
        self._server_signature = b""

    def start(self) -> bytes:
        """Return the first message."""
        return f"{_NO_CHANNEL_BINDING}{self._first}".encode()

    def respond(self, challenge: bytes) -> bytes:
        """Return the proof for a challenge; it takes the CPU some milliseconds."""
        try:
            text = challenge.decode()
            fields = dict(part.split("=", 1) for part in text.split(","))
            nonce, salt, iterations = fields["r"], base64.b64decode(fields["s"], validate=True), int(fields["i"])
        except (ValueError, KeyError, binascii.Error) as error:
            raise LoginRefused("the challenge of the server can't be read") from error
        if not nonce.startswith(self._nonce) or not 0 < iterations <= _MAX_ITERATIONS or "m" in fields:
            raise LoginRefused("the challenge of the server is not for this login")
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, iterations)
        client_key = self._sign(salted, b"Client Key")
        final = f"c={base64.b64encode(_NO_CHANNEL_BINDING.encode()).decode()},r={nonce}"
        exchange = f"{self._first},{text},{final}".encode()
        signature = self._sign(hashlib.new(self._hash, client_key).digest(), exchange)
        proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
        self._server_signature = self._sign(self._sign(salted, b"Server Key"), exchange)
        return f"{final},p={base64.b64encode(proof).decode()}".encode()

    def verify(self, outcome: bytes) -> None:
        """Raise `LoginRefused` unless the server has proved that it knows the password, too."""
        expected = b"v=" + base64.b64encode(self._server_signature)
        if not self._server_signature or not hmac.compare_digest(outcome.split(b",")[0], expected):
            raise LoginRefused("the server doesn't know the password of the account")

    def _sign(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._hash)
