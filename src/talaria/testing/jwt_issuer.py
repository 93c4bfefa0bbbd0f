"""An issuer of signed tokens (JWT): it publishes its keys and may replace them."""

import time
from collections.abc import Mapping
from functools import cache
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

LIFE = 3600  # seconds


class JwtIssuer:
    """Signs with its newest key; ``fields`` are added to its published keys."""

    def __init__(self, fields: Mapping[str, Any] | None = None) -> None:
        self._fields = dict(fields or {})
        self._number = 0
        self.fetched = 0

    def rotate(self) -> None:
        """Replace the key: tokens are signed with another one, and the old one isn't published any more."""
        self._number += 1

    def key_set(self) -> dict[str, Any]:
        """Return the published keys."""
        self.fetched += 1
        public = RSAAlgorithm.to_jwk(make_rsa_key(self._number).public_key(), as_dict=True)
        return {"keys": [{**public, "kid": self._key_id, "use": "sig", **self._fields}]}

    def sign(self, claims: Mapping[str, Any], *, algorithm: str = "RS256", key_id: str = "") -> str:
        """Return a token that is valid for an hour, unless the claims differ."""
        now = int(time.time())
        full = {"nbf": now, "iat": now, "exp": now + LIFE, **claims}
        key: Any = make_rsa_key(self._number) if algorithm == "RS256" else "a secret of thirty-two characters"
        return jwt.encode(full, key, algorithm=algorithm, headers={"kid": key_id or self._key_id})

    @property
    def _key_id(self) -> str:
        return f"key-{self._number}"


@cache
def make_rsa_key(number: int) -> rsa.RSAPrivateKey:
    """Return a key, the same for all issuers of this process: making one takes long."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)
