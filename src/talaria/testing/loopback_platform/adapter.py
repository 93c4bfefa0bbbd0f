"""The adapter of the loopback network, with its settings, its connection, and that of a test that controls it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path, PurePath
from types import TracebackType
from typing import Self

import msgspec
from msgspec import Struct

from talaria.contracts.platform import (
    Attachment,
    BatchedUpdates,
    Content,
    Incoming,
    MessageRef,
    PlatformCapabilities,
    Sender,
)
from talaria.core.addresses import Address
from talaria.core.errors import BadCredentials, PlatformError, Rejected, SlowDown, Unreachable
from talaria.testing.loopback_platform.wire import (
    LONGEST_LINE,
    AccountRequest,
    Answer,
    Arrived,
    Confirm,
    Done,
    Drop,
    Edit,
    Failed,
    Fault,
    Fetch,
    Login,
    MakeThread,
    React,
    ReadRecords,
    Receive,
    Record,
    Request,
    Say,
    SetFaults,
    ShowTyping,
    decode_answer,
    line,
    read_sent_file,
    replace_surrogates,
    to_post,
)
from talaria.testing.wait import LIMIT

_CHUNK_BYTES = 1024 * 1024
_PATIENCE = LIMIT
CHATTY = PlatformCapabilities(
    text_limit=4096, edits=True, typing=True, buttons=True, threads=True, reactions=True, file_limit=1_000_000
)


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
                raise _make_error(answer)
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
                while (found := self._take_answer()) is None:
                    await self._read_more()
        except TimeoutError as error:
            raise Unreachable(f"the network sent nothing for {patience:g} s") from error
        except OSError as error:
            raise Unreachable(f"the network disconnected: {error}") from error
        return found

    def take_received(self, most: int) -> list[Answer]:
        """Return the lines that are here already, so many at most."""
        found: list[Answer] = []
        while len(found) < most and (one := self._take_answer()) is not None:
            found.append(one)
        return found

    def _take_answer(self) -> Answer | None:
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
        message = Say(
            address=address,
            sender=Sender(sender, sender),
            text=text,
            external_id=external_id,
            deliveries=deliveries,
        )
        return (await self._open.ask(message, _PATIENCE)).id

    async def read_records(self, since: int = 0, patience: float = 0.0) -> list[Record]:
        """Return the operations from this number on; wait up to so many seconds for the first."""
        return list((await self._open.ask(ReadRecords(since, patience), _PATIENCE + patience)).records)

    async def unconfirmed(self) -> int:
        """Return the number of updates that were not confirmed."""
        return int((await self._open.ask(ReadRecords(2**40), _PATIENCE)).id)

    async def disrupt(self, *faults: Fault, delay: float = 0.0) -> None:
        """Let these things go wrong from now on, instead of those before; each answer takes ``delay`` seconds."""
        await self._open.ask(SetFaults(faults, delay), _PATIENCE)

    async def drop(self) -> None:
        """Hang up on everybody else."""
        await self._open.ask(Drop(), _PATIENCE)

    @property
    def _open(self) -> LoopbackConnection:
        assert self._connection is not None
        return self._connection


class LoopbackSettings(Struct, frozen=True, kw_only=True):
    """The address of the network, ``host:port``, and its capabilities: the same as the network's own.

    ``patience`` is how many seconds an answer may take, or a receiving connection may be silent.
    """

    address: str
    abilities: PlatformCapabilities = CHATTY
    name: str = "loopback"
    token: str = ""
    patience: float = 5.0


class LoopbackPlatform:
    """A `Platform` on the loopback network. Connections are reused; a failed one is not."""

    def __init__(self, settings: LoopbackSettings) -> None:
        self.name = settings.name
        self.abilities = settings.abilities
        self._settings = settings
        self._idle: list[LoopbackConnection] = []

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[AsyncIterator[Incoming]]:
        """Log in, yield what people do, log out when the block ends."""
        connection = await self._open()
        try:
            await connection.ask(Receive(), self._settings.patience)
            yield _IncomingStream(connection, self._settings.patience)
        finally:
            connection.close()

    async def send(self, to: Address, content: Content, key: str) -> MessageRef:
        """Post one message."""
        files = tuple([await asyncio.to_thread(read_sent_file, file) for file in content.files])
        done = await self._ask(to_post(to, content, key, files))
        return MessageRef(to, done.id)

    async def edit(self, ref: MessageRef, content: Content) -> None:
        """Replace a posted message."""
        await self._ask(
            Edit(
                address=ref.address,
                message_id=ref.message_id,
                text=replace_surrogates(content.text),
                buttons=content.buttons,
            )
        )

    async def show_typing(self, to: Address) -> None:
        """Show for some seconds that an answer is being written."""
        await self._ask(ShowTyping(to))

    async def react(self, ref: MessageRef, emoji: str) -> None:
        """Mark a message in place of the mark before; empty takes it away."""
        await self._ask(React(ref.address, ref.message_id, emoji))

    async def fetch(self, attachment: Attachment, folder: Path) -> Path:
        """Download a file into a folder under a safe name and return where it is."""
        done = await self._ask(Fetch(attachment.reference))
        name = PurePath(attachment.name).name[-100:] or "file"
        file = folder / f"{attachment.reference}-{name}".replace("/", "_")
        await asyncio.to_thread(file.write_bytes, done.data)
        return file

    async def create_handoff_thread(self, parent_chat_id: str, name: str) -> str | None:
        """Create a thread; ``None`` if the network has none."""
        try:
            return (await self._ask(MakeThread(parent_chat_id, name))).id
        except Rejected:
            return None

    def close(self) -> None:
        """Close the pooled connections."""
        while self._idle:
            self._idle.pop().close()

    async def _ask(self, request: AccountRequest) -> Done:
        connection = self._idle.pop() if self._idle else await self._open()
        try:
            done = await connection.ask(request, self._settings.patience)
        except Rejected:
            self._idle.append(connection)
            raise
        except BaseException:
            connection.close()
            raise
        self._idle.append(connection)
        return done

    async def _open(self) -> LoopbackConnection:
        connection = await connect_to_network(self._settings.address, self._settings.patience)
        try:
            await connection.ask(Login(self._settings.token), self._settings.patience)
        except BaseException:
            connection.close()
            raise
        return connection


class _IncomingStream(BatchedUpdates):
    """Incoming updates, confirmed when more are requested."""

    def __init__(self, connection: LoopbackConnection, patience: float) -> None:
        self._connection = connection
        self._patience = patience
        self._handed_out: list[str] = []

    async def __anext__(self) -> Incoming:
        while self._handed_out:
            await self._connection.write(Confirm(self._handed_out[0]))
            self._handed_out.pop(0)
        while not isinstance(arrived := await self._connection.read(self._patience), Arrived):
            pass
        return self._hand_out(arrived)

    def at_hand(self, most: int) -> list[Incoming]:
        """Return messages that have arrived already."""
        return [self._hand_out(one) for one in self._connection.take_received(most) if isinstance(one, Arrived)]

    def _hand_out(self, arrived: Arrived) -> Incoming:
        self._handed_out.append(arrived.incoming.external_id)
        return arrived.incoming


def _make_error(failed: Failed) -> PlatformError:
    match failed.trouble:
        case "refuse":
            return Rejected(failed.text)
        case "slow_down":
            return SlowDown(failed.text, retry_after=timedelta(seconds=failed.seconds))
        case "bad_credentials":
            return BadCredentials(failed.text)
        case _:
            return Unreachable(failed.text)
