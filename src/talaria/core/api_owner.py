"""Owners of conversations that API clients start as guests."""

KEYLESS_OWNER = "api"  # all callers without a key together; these never get tools that run programs


def api_owner(key_name: str) -> str:
    """Return the owner of conversations of a key; without a name, of callers without a key."""
    return f"{KEYLESS_OWNER}:{key_name}" if key_name else KEYLESS_OWNER
