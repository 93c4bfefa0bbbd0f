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


class Line:
    """An open connection. Raises the errors of `Platform`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

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
                read = await self._reader.readline()
        except TimeoutError as error:
            raise Unreachable(f"nothing was heard of the network for {patience:g} s") from error
        except (OSError, ValueError) as error:
            raise Unreachable(f"the network hung up: {error}") from error
        if not read.endswith(b"\n"):
            raise Unreachable("the network hung up")
        try:
            return decode_answer(read)
        except msgspec.DecodeError as error:
            raise Unreachable(f"the network said something strange: {error}") from error

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
