"""API keys with names and scopes, stored as digests, and the file with the first key."""

import hashlib
import os
import secrets
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Literal, get_args

from msgspec import Struct, structs

from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.access import StoredApiKey
from talaria.core.errors import NotFound, Refused
from talaria.settings.atomic_files import read_file, write_file
from talaria.settings.profiles import Profile

KeyScope = Literal["chat", "agent", "read", "admin"]
SCOPES: tuple[KeyScope, ...] = get_args(KeyScope)
ENVIRONMENT_KEY = "TALARIA_API_KEY"
_KEY_START = "tal_"
_BYTES = 32
_LONGEST_NAME = 64
_SHORTEST_KEY = 16
_FEWEST_CHARACTERS = 8  # distinct characters
NAME = "first"


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


async def create_first_key(store: Store, profile: Profile) -> bool:
    """Create a key with the scope ``admin`` and write it to `api_key_file`, if the store has no key.

    Returns whether a key was created. If several servers start at once, only one creates it. The file has mode 0600.
    """
    if await store.read(list_keys):
        return False
    token = new_token()
    draft = profile.folder / f".{profile.api_key_file.name}.{os.getpid()}"
    write_file(draft, f"{token}\n")
    try:
        created = await store.write(lambda tx: _create(tx, token))
        if created:
            draft.replace(profile.api_key_file)
    finally:
        draft.unlink(missing_ok=True)
    return created


def read_key_file(profile: Profile) -> str:
    """Return the key from the profile's key file, or an empty string if there is no file."""
    return (read_file(profile.api_key_file) or b"").decode(errors="replace").strip()


def remove_key_file(profile: Profile, digest: str) -> bool:
    """Remove the key file if it contains the key with this digest; return whether it did."""
    if digest_of(read_key_file(profile)) != digest:
        return False
    profile.api_key_file.unlink(missing_ok=True)
    return True


def _create(tx: Transaction, token: str) -> bool:
    if list_keys(tx):
        return False
    create_key(tx, NAME, ("admin",), token)
    return True
