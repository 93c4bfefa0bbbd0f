"""Incoming messages as adapters pass them to the gateway."""

from talaria.contracts.platform import Incoming, Sender
from talaria.core.addresses import Address, ChatType
from talaria.testing.clock import NOON

ANN, BEN = Sender("1", "Ann"), Sender("2", "Ben")


def incoming_message(
    sender: Sender,
    text: str = "Hello",
    *,
    platform: str = "telegram",
    chat: str = "",
    kind: ChatType = "private",
    addressed: bool = True,
) -> Incoming:
    """Return a message of a sender, in their private chat or in the chat that is named."""
    address = Address(platform, chat or sender.id, kind if chat else "private")
    return Incoming(
        external_id=f"{platform} {text}", address=address, sender=sender, at=NOON, text=text, addressed=addressed
    )
