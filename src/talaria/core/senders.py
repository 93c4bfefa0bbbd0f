"""Identity of the writer of a text, which decides its rights and which turn it may join."""

KEYLESS_OWNER = "api"  # all callers without a key together; these never get tools that run programs


def api_owner(key_name: str) -> str:
    """Return the owner of conversations of a key; without a name, of callers without a key."""
    return f"{KEYLESS_OWNER}:{key_name}" if key_name else KEYLESS_OWNER


OWNER = "owner"  # the person at this machine: the terminal, a script, Python


UNKNOWN = ""


_API = "api:"


def chat_sender(platform: str, user_id: str) -> str:
    """Return the sender of a message in a chat; it ends with the colon where the network names nobody."""
    return f"{platform}:{user_id}"


def is_in_chat(sender: str) -> bool:
    """Return whether a text was written in a chat, by any sender."""
    return sender not in (OWNER, UNKNOWN) and not sender.startswith(_API)


def user_id_of(sender: str, platform: str) -> str:
    """Return the id of a sender on a network; empty for a sender from elsewhere."""
    prefix = f"{platform}:"
    return sender.removeprefix(prefix) if sender.startswith(prefix) else ""


def api_sender(key_name: str) -> str:
    """Return the sender of a request to the API."""
    return f"{_API}{key_name}"


def is_same_sender(one: str, other: str) -> bool:
    """Return whether two texts come from the same person; an unknown sender is never the same as another."""
    return one == other != UNKNOWN and not one.endswith(":")
