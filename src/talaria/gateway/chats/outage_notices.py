"""Notices about a store outage: each chat gets one per outage."""

from talaria.core.addresses import Address


class OutageNotices:
    """Chats of one network that were notified of the current outage."""

    def __init__(self) -> None:
        self._notified: set[tuple[str, str]] = set()

    def claim(self, address: Address) -> bool:
        """Return whether to notify this chat: ``True`` the first time in an outage."""
        chat = (address.chat_id, address.thread_id)
        if chat in self._notified:
            return False
        self._notified.add(chat)
        return True

    def end(self) -> None:
        """End the outage, because the store has accepted a write."""
        self._notified.clear()
