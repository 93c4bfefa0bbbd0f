"""An account on the loopback network: an adapter like those of real networks, I/O and nothing else."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path, PurePath

from talaria.contracts.platform import Attachment, Content, Handfuls, Incoming, MessageRef
from talaria.core.addresses import Address
from talaria.core.errors import Rejected
from talaria.testing.loopback_platform.connection import Line, open_line
from talaria.testing.loopback_platform.outgoing import sendable, to_post, to_sent
from talaria.testing.loopback_platform.settings import LoopbackSettings
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
)


class LoopbackPlatform:
    """Implements `Platform`. Connections are kept for the next call; one that failed is not."""

    def __init__(self, settings: LoopbackSettings) -> None:
        self.name = settings.name
        self.abilities = settings.abilities
        self._settings = settings
        self._idle: list[Line] = []

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[AsyncIterator[Incoming]]:
        """Log in, yield what people do, log out when the block ends."""
        line = await self._open()
        try:
            await line.ask(Receive(), self._settings.patience)
            yield _Arrivals(line, self._settings.patience)
        finally:
            line.close()

    async def send(self, to: Address, content: Content, key: str) -> MessageRef:
        """Post one message."""
        files = tuple([await asyncio.to_thread(to_sent, file) for file in content.files])
        done = await self._ask(to_post(to, content, key, files))
        return MessageRef(to, done.id)

    async def edit(self, ref: MessageRef, content: Content) -> None:
        """Replace a posted message."""
        await self._ask(
            Edit(address=ref.address, message_id=ref.message_id, text=sendable(content.text), buttons=content.buttons)
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
        """Make a thread, or return ``None`` where there are none."""
        try:
            return (await self._ask(MakeThread(parent_chat_id, name))).id
        except Rejected:
            return None

    def close(self) -> None:
        """Let go of the connections that are kept."""
        while self._idle:
            self._idle.pop().close()

    async def _ask(self, request: AccountRequest) -> Done:
        line = self._idle.pop() if self._idle else await self._open()
        try:
            done = await line.ask(request, self._settings.patience)
        except Rejected:
            self._idle.append(line)
            raise
        except BaseException:
            line.close()
            raise
        self._idle.append(line)
        return done

    async def _open(self) -> Line:
        line = await open_line(self._settings.address, self._settings.patience)
        try:
            await line.ask(Login(self._settings.token), self._settings.patience)
        except BaseException:
            line.close()
            raise
        return line


class _Arrivals(Handfuls):
    """What the network says, confirmed as soon as more is asked for."""

    def __init__(self, line: Line, patience: float) -> None:
        self._line = line
        self._patience = patience
        self._handed: list[str] = []

    async def __anext__(self) -> Incoming:
        while self._handed:
            await self._line.write(Confirm(self._handed[0]))
            self._handed.pop(0)
        while not isinstance(arrived := await self._line.read(self._patience), Arrived):
            pass
        return self._handing(arrived)

    def at_hand(self, most: int) -> list[Incoming]:
        """Return what the network has said already."""
        return [self._handing(one) for one in self._line.heard(most) if isinstance(one, Arrived)]

    def _handing(self, arrived: Arrived) -> Incoming:
        self._handed.append(arrived.incoming.external_id)
        return arrived.incoming
