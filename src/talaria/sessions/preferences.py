"""What was chosen for one conversation alone, instead of what the settings say."""

import msgspec
from msgspec import Struct

from talaria.contracts.store import Transaction
from talaria.core.ids import SessionId


class Preferences(Struct, frozen=True, omit_defaults=True):
    """``model`` is written as PROVIDER:MODEL; what is empty is as the settings say."""

    model: str = ""
    effort: str = ""
    personality: str = ""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Preferences).decode


def read_preferences(tx: Transaction, session_id: SessionId) -> Preferences:
    """Return what was chosen for a conversation."""
    entry = tx.state.get(_key(session_id))
    return _decode(entry.value) if entry else Preferences()


def write_preferences(tx: Transaction, session_id: SessionId, chosen: Preferences) -> None:
    """Keep what was chosen for a conversation; it counts from the next time that it is opened."""
    tx.state.put(_key(session_id), _encode(chosen).decode())


def _key(session_id: SessionId) -> str:
    return f"preferences:{session_id}"
