"""A connection to the loopback network: a line out, a line in, each within its time."""

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

_AT_ONCE = 1024 * 1024


class Line:
    """An open connection. Raises the errors of `Platform`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._heard = bytearray()
        self._looked = 0

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
            raise Unreachable(f"the network hung up: {error}") from error

    async def read(self, patience: float) -> Answer:
        """Return the next line, or raise `Unreachable` when none comes in time."""
        try:
            async with asyncio.timeout(patience):
                while (found := self._next()) is None:
                    await self._hear()
        except TimeoutError as error:
            raise Unreachable(f"nothing was heard of the network for {patience:g} s") from error
        except OSError as error:
            raise Unreachable(f"the network hung up: {error}") from error
        return found

    def heard(self, most: int) -> list[Answer]:
        """Return the lines that are here already, so many at most."""
        found: list[Answer] = []
        while len(found) < most and (one := self._next()) is not None:
            found.append(one)
        return found

    def _next(self) -> Answer | None:
        end = self._heard.find(b"\n", self._looked)
        if end < 0:
            self._looked = len(self._heard)
            return None
        text = bytes(self._heard[:end])
        del self._heard[: end + 1]
        self._looked = 0
        try:
            return decode_answer(text)
        except msgspec.DecodeError as error:
            raise Unreachable(f"the network said something strange: {error}") from error

    async def _hear(self) -> None:
        more = await self._reader.read(_AT_ONCE)
        if not more:
            raise Unreachable("the network hung up")
        if len(self._heard) > LONGEST_LINE:
            raise Unreachable("the network does not come to an end")
        self._heard += more

    def close(self) -> None:
        """Hang up."""
        self._writer.transport.abort()


async def open_line(address: str, patience: float) -> Line:
    """Connect, or raise `Unreachable`."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(patience):
            return Line(*await asyncio.open_connection(host, int(port), limit=LONGEST_LINE))
    except (OSError, TimeoutError) as error:
        raise Unreachable(f"{address} cannot be reached: {error}") from error


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
