"""Connections to the loopback network from outside: of an adapter, and of a test that controls it."""

import asyncio
from datetime import timedelta
from types import TracebackType
from typing import Self

import msgspec

from talaria.contracts.platform import Sender
from talaria.core.addresses import Address
from talaria.core.errors import BadCredentials, PlatformError, Rejected, SlowDown, Unreachable
from talaria.testing.loopback_platform.wire import (
    LONGEST_LINE,
    Answer,
    Done,
    Drop,
    Failed,
    Fault,
    Look,
    Record,
    Request,
    Say,
    Upset,
    decode_answer,
    line,
)
from talaria.testing.wait import LIMIT

_CHUNK_BYTES = 1024 * 1024
_PATIENCE = LIMIT


class LoopbackConnection:
    """An open connection. Raises the errors of `Platform`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._buffer = bytearray()
        self._searched = 0

    async def ask(self, request: Request, patience: float) -> Done:
        """Send a request and return its answer."""
        await self.write(request)
        answer = await self.read(patience)
        match answer:
            case Done():
                return answer
            case Failed():
                raise _error(answer)
            case _:
                raise Unreachable(f"an answer was expected, not {type(answer).__name__}")

    async def write(self, request: Request) -> None:
        """Send a line."""
        try:
            self._writer.write(line(request))
            await self._writer.drain()
        except OSError as error:
            raise Unreachable(f"the network disconnected: {error}") from error

    async def read(self, patience: float) -> Answer:
        """Return the next line, or raise `Unreachable` when none comes in time."""
        try:
            async with asyncio.timeout(patience):
                while (found := self._next()) is None:
                    await self._read_more()
        except TimeoutError as error:
            raise Unreachable(f"the network sent nothing for {patience:g} s") from error
        except OSError as error:
            raise Unreachable(f"the network disconnected: {error}") from error
        return found

    def heard(self, most: int) -> list[Answer]:
        """Return the lines that are here already, so many at most."""
        found: list[Answer] = []
        while len(found) < most and (one := self._next()) is not None:
            found.append(one)
        return found

    def _next(self) -> Answer | None:
        end = self._buffer.find(b"\n", self._searched)
        if end < 0:
            self._searched = len(self._buffer)
            return None
        text = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        self._searched = 0
        try:
            return decode_answer(text)
        except msgspec.DecodeError as error:
            raise Unreachable(f"invalid data from the network: {error}") from error

    async def _read_more(self) -> None:
        more = await self._reader.read(_CHUNK_BYTES)
        if not more:
            raise Unreachable("the network disconnected")
        if len(self._buffer) > LONGEST_LINE:
            raise Unreachable("the line from the network never ends")
        self._buffer += more

    def close(self) -> None:
        """Hang up."""
        self._writer.transport.abort()


async def connect_to_network(address: str, patience: float) -> LoopbackConnection:
    """Connect, or raise `Unreachable`."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(patience):
            return LoopbackConnection(*await asyncio.open_connection(host, int(port), limit=LONGEST_LINE))
    except (OSError, TimeoutError) as error:
        raise Unreachable(f"{address} can't be reached: {error}") from error


def _error(failed: Failed) -> PlatformError:
    match failed.trouble:
        case "refuse":
            return Rejected(failed.text)
        case "slow_down":
            return SlowDown(failed.text, retry_after=timedelta(seconds=failed.seconds))
        case "bad_credentials":
            return BadCredentials(failed.text)
        case _:
            return Unreachable(failed.text)


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
