"""First API key: created when a server first starts, stored in a file of the profile."""

import os

from talaria.access.api_keys import create_key, digest_of, list_keys, new_token
from talaria.contracts.store import Store, Transaction
from talaria.settings.atomic_files import read_file, write_file
from talaria.settings.profiles import Profile

NAME = "first"


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
