"""Control of a loopback network that runs in another process."""

from types import TracebackType
from typing import Self

from talaria.contracts.platform import Sender
from talaria.core.addresses import Address
from talaria.testing.loopback_platform.connection import LoopbackConnection, connect_to_network
from talaria.testing.loopback_platform.wire import Drop, Fault, Look, Record, Say, Upset
from talaria.testing.wait import LIMIT

_PATIENCE = LIMIT


class FarSide:
    """Controls the network at ``host:port``; ``async with`` connects to it."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._connection: LoopbackConnection | None = None

    async def __aenter__(self) -> Self:
        self._connection = await connect_to_network(self._address, _PATIENCE)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    async def say(
        self, chat: str | Address, text: str, *, sender: str = "ann", external_id: str = "", deliveries: int = 1
    ) -> str:
        """Let a person write something, delivered so many times, and return its id."""
        address = chat if isinstance(chat, Address) else Address("loopback", chat, user_id=sender)
        said = Say(
            address=address,
            sender=Sender(sender, sender),
            text=text,
            external_id=external_id,
            deliveries=deliveries,
        )
        return (await self._open.ask(said, _PATIENCE)).id

    async def look(self, since: int = 0, patience: float = 0.0) -> list[Record]:
        """Return the operations from this number on; wait up to so many seconds for the first."""
        return list((await self._open.ask(Look(since, patience), _PATIENCE + patience)).records)

    async def unconfirmed(self) -> int:
        """Return the number of updates that were not confirmed."""
        return int((await self._open.ask(Look(2**40), _PATIENCE)).id)

    async def disrupt(self, *faults: Fault, delay: float = 0.0) -> None:
        """Let these things go wrong from now on, instead of those before; each answer takes ``delay`` seconds."""
        await self._open.ask(Upset(faults, delay), _PATIENCE)

    async def drop(self) -> None:
        """Hang up on everybody else."""
        await self._open.ask(Drop(), _PATIENCE)

    @property
    def _open(self) -> LoopbackConnection:
        assert self._connection is not None
        return self._connection
