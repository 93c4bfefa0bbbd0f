"""The adapter of the loopback network, like those of real networks, with its settings."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path, PurePath

from msgspec import Struct

from talaria.contracts.platform import (
    Attachment,
    BatchedUpdates,
    Content,
    Incoming,
    MessageRef,
    PlatformCapabilities,
)
from talaria.core.addresses import Address
from talaria.core.errors import Rejected
from talaria.testing.loopback_platform.connection import LoopbackConnection, connect_to_network
from talaria.testing.loopback_platform.wire import (
    AccountRequest,
    Arrived,
    Confirm,
    Done,
    Edit,
    Fetch,
    Login,
    MakeThread,
    React,
    Receive,
    ShowTyping,
    read_sent_file,
    replace_surrogates,
    to_post,
)

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
        """Return what the network has said already."""
        return [self._hand_out(one) for one in self._connection.heard(most) if isinstance(one, Arrived)]

    def _hand_out(self, arrived: Arrived) -> Incoming:
        self._handed_out.append(arrived.incoming.external_id)
        return arrived.incoming
