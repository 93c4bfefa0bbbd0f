"""NOTIFY channel of a schema and the payload format of its notifications."""

from hashlib import sha256

from msgspec import Struct


class NotificationChannel(Struct, frozen=True):
    """NOTIFY channel as one process uses it.

    ``origin`` identifies the process; it is empty for a process that never listens.
    """

    name: str
    origin: str = ""

    def encode_payload(self, topic: str) -> str:
        """Return the payload that notifies a topic."""
        return f"{self.origin}:{topic}"

    def decode_payload(self, payload: str) -> str | None:
        """Return the topic of a payload; ``None`` if it comes from this process.

        This process has already woken its own subscribers.
        """
        origin, _, topic = payload.partition(":")
        return None if origin == self.origin else topic


def make_channel_name(schema: str) -> str:
    """Return the channel name of a schema, hashed because a schema name may be too long.

    Channels are separate for each database of a server.
    """
    return f"talaria_{sha256(schema.encode()).hexdigest()[:24]}"
