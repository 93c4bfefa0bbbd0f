"""A connection to the loopback network: one line out, one line in, with time-outs."""

import asyncio
from datetime import timedelta

import msgspec

from talaria.core.errors import BadCredentials, PlatformError, Rejected, SlowDown, Unreachable
from talaria.testing.loopback_platform.wire import (
    LONGEST_LINE,
    Answer,
    Done,
    Failed,
    Request,
    decode_answer,
    line,
)

_CHUNK_BYTES = 1024 * 1024


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
