"""Whether somebody may speak who has not said anything yet: one who invites us, say."""

from datetime import datetime

from talaria.contracts.platform import Incoming, Sender
from talaria.contracts.store import Transaction
from talaria.core.addresses import Address
from talaria.gateway.access import Access, Allowed
from talaria.sessions.aliases import known_ids
from talaria.settings.model import Settings


def may_speak(tx: Transaction, settings: Settings, place: Address, sender: Sender, now: datetime) -> bool:
    """Tell whether what somebody says at a place would be heard; who would only get a code may not speak yet."""
    ids = known_ids(tx, place.platform, sender.id)
    paired = any(tx.pairing.is_paired(place.platform, one) for one in ids)
    asked = Incoming(external_id="", address=place, sender=sender, at=now)
    return isinstance(Access(settings).decide(asked, paired, ids), Allowed)
