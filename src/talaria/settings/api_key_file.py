"""The API key that a server creates at its first start, and its file in the profile."""

import os

from talaria.contracts.store import Store, Transaction
from talaria.sessions.api_keys import create_key, digest_of, list_keys, new_token
from talaria.settings.files import read_file, write_file
from talaria.settings.profiles import Profile

NAME = "first"


async def create_first_key(store: Store, profile: Profile) -> bool:
    """Create a key with the scope ``admin`` where the store has no key at all, and write it to `api_key_file`.

    Of several servers that start at once, one does it. The file is mode 0600.
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
    """Return the key in the file of a profile; empty where there is none."""
    return (read_file(profile.api_key_file) or b"").decode(errors="replace").strip()


def remove_key_file(profile: Profile, digest: str) -> bool:
    """Remove the file if it has the key with this digest, and tell whether it had."""
    if digest_of(read_key_file(profile)) != digest:
        return False
    profile.api_key_file.unlink(missing_ok=True)
    return True


def _create(tx: Transaction, token: str) -> bool:
    if list_keys(tx):
        return False
    create_key(tx, NAME, ("admin",), token)
    return True
