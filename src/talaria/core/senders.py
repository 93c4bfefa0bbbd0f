"""Identity of the person who wrote a text: it decides which rights the text has and which turn it may join."""

OWNER = "owner"  # the person at this machine: the terminal, a script, Python
UNKNOWN = ""


def chat_sender(platform: str, user_id: str) -> str:
    """Return the sender of a message in a chat; `UNKNOWN` where the network names nobody."""
    return f"{platform}:{user_id}" if user_id else UNKNOWN


def user_id_of(sender: str, platform: str) -> str:
    """Return the id of a sender on a network; empty for a sender from elsewhere."""
    prefix = f"{platform}:"
    return sender.removeprefix(prefix) if sender.startswith(prefix) else ""


def api_sender(key_name: str) -> str:
    """Return the sender of a request to the API."""
    return f"api:{key_name}"


def is_same_sender(one: str, other: str) -> bool:
    """Return whether two texts come from the same person; an unknown sender is never the same as another."""
    return one == other != UNKNOWN
