"""Where the owner is at home on each network, and whether a gateway is there to reach them."""

import msgspec
from msgspec import Struct

from talaria.contracts.store import Transaction
from talaria.core.addresses import Address
from talaria.core.ids import is_gone

GATEWAY = "gateway"
HANDOFFS = "handoffs"  # the topic of hints that somebody asks for one


class Home(Struct, frozen=True, omit_defaults=True):
    """The chat to which everything goes that has no better place."""

    address: Address
    name: str = ""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Home).decode


def read_home(tx: Transaction, platform: str) -> Home | None:
    """Return the home channel of a network, if one was set."""
    entry = tx.state.get(_key(platform))
    return _decode(entry.value) if entry else None


def write_home(tx: Transaction, home: Home) -> None:
    """Make a chat the home channel of its network."""
    tx.state.put(_key(home.address.platform), _encode(home).decode())


def gateway_alive(tx: Transaction) -> bool:
    """Tell whether a gateway runs on this store: it holds a lease for as long as it does."""
    lease = tx.leases.get(GATEWAY)
    return lease is not None and not is_gone(lease.owner)


def _key(platform: str) -> str:
    return f"home:{platform}"
