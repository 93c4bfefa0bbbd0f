"""Settings of the adapter of the loopback network."""

from msgspec import Struct

from talaria.contracts.platform import PlatformCapabilities

CHATTY = PlatformCapabilities(
    text_limit=4096, edits=True, typing=True, buttons=True, threads=True, reactions=True, file_limit=1_000_000
)


class LoopbackSettings(Struct, frozen=True, kw_only=True):
    """The address of the network, ``host:port``, and its capabilities: the same as the network's own.

    ``patience`` is how many seconds an answer may take, or a receiving connection may be silent.
    """

    address: str
    abilities: PlatformCapabilities = CHATTY
    name: str = "loopback"
    token: str = ""
    patience: float = 5.0
