"""API keys with names and scopes, stored as digests."""

import hashlib
import secrets
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Literal, get_args

from msgspec import Struct, structs

from talaria.contracts.store import Transaction
from talaria.contracts.stores.api_keys import StoredApiKey
from talaria.core.errors import NotFound, Refused

KeyScope = Literal["chat", "agent", "read", "admin"]
SCOPES: tuple[KeyScope, ...] = get_args(KeyScope)
ENVIRONMENT_KEY = "TALARIA_API_KEY"
_KEY_START = "tal_"
_BYTES = 32
_LONGEST_NAME = 64
_SHORTEST_KEY = 16
_FEWEST_CHARACTERS = 8  # distinct characters


class ApiKey(Struct, frozen=True, kw_only=True):
    """Stored API key: the digest, not the key itself."""

    name: str
    scopes: tuple[KeyScope, ...]
    digest: str
    created_at: datetime


def create_key(tx: Transaction, name: str, scopes: Iterable[KeyScope], token: str) -> ApiKey:
    """Store a key under a name.

    Raises `Refused` for an invalid or taken name and for an empty list of scopes.
    """
    if not name.strip() or len(name) > _LONGEST_NAME or not name.isprintable():
        raise Refused(f"A key name must have 1 to {_LONGEST_NAME} printable characters.")
    granted = tuple(scope for scope in SCOPES if scope in set(scopes))
    if not granted:
        raise Refused(f"A key needs a scope. Choose from {', '.join(SCOPES)} with --scope.")
    key = ApiKey(name=name, scopes=granted, digest=digest_of(token), created_at=datetime.now(UTC))
    if not tx.api_keys.add(StoredApiKey(**structs.asdict(key))):
        raise Refused(f"The key `{name}` already exists. Choose another name, or revoke it first.")
    return key


def list_keys(tx: Transaction) -> list[ApiKey]:
    """Return all keys, ordered by name."""
    return [
        ApiKey(
            name=key.name,
            scopes=tuple(scope for scope in SCOPES if scope in key.scopes),
            digest=key.digest,
            created_at=key.created_at,
        )
        for key in tx.api_keys.all()
    ]


def revoke_key(tx: Transaction, name: str) -> None:
    """Delete a key, or raise `NotFound`."""
    if not tx.api_keys.delete(name):
        raise NotFound(f"No key is called `{name}`. `talaria api-keys list` lists them.")


def new_token() -> str:
    """Return a new random key."""
    return _KEY_START + secrets.token_urlsafe(_BYTES)


def digest_of(token: str) -> str:
    """Return the SHA-256 digest of a key; random keys need no salt."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def check_strength(token: str) -> None:
    """Raise `Refused` if a user-chosen key is too easy to guess."""
    if len(token) < _SHORTEST_KEY or len(set(token)) < _FEWEST_CHARACTERS:
        raise Refused(
            f"{ENVIRONMENT_KEY} is too easy to guess: use at least {_SHORTEST_KEY} characters, {_FEWEST_CHARACTERS} of"
            f" them different. `openssl rand -hex 24` makes a good one; `talaria config set {ENVIRONMENT_KEY} -` stores"
            " it."
        )
