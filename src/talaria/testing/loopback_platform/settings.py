"""What the adapter of the loopback network is told."""

from msgspec import Struct

from talaria.contracts.platform import Abilities

CHATTY = Abilities(
    text_limit=4096, edits=True, typing=True, buttons=True, threads=True, reactions=True, file_limit=1_000_000
)


class LoopbackSettings(Struct, frozen=True, kw_only=True):
    """Where the network is, ``host:port``, and what it can do: the same as the network was told.

    ``patience`` is how many seconds an answer may take, or a receiving connection be without a sign of life.
    """

    address: str
    abilities: Abilities = CHATTY
    name: str = "loopback"
    token: str = ""
    patience: float = 5.0
