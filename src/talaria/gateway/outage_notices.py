"""Which chats were told that the store cannot be used: each is told once in an outage."""

from talaria.core.addresses import Address


class OutageNotices:
    """The chats of one network that know about the present outage of the store."""

    def __init__(self) -> None:
        self._told: set[tuple[str, str]] = set()

    def claim(self, address: Address) -> bool:
        """Tell whether to notify this chat: ``True`` the first time in an outage."""
        chat = (address.chat_id, address.thread_id)
        if chat in self._told:
            return False
        self._told.add(chat)
        return True

    def end(self) -> None:
        """The store took a write: what happens next is another outage."""
        self._told.clear()
