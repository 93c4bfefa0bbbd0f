"""A chat of lines over TCP, as small as an adapter can be."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import msgspec

from talaria.contracts.platform import (
    Content,
    Incoming,
    MessageRef,
    Platform,
    PlatformAccount,
    PlatformCapabilities,
    PlatformDefaults,
    Sender,
)
from talaria.core.addresses import Address
from talaria.core.errors import BadCredentials, PlatformError, Refused, Rejected, SlowDown, Unreachable

_LONGEST_LINE = 64 * 1024


class LineChatSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Address of the server, and its token; ``patience`` is how many seconds it may be silent."""

    host: str
    port: int
    token: str
    name: str = "linechat"
    patience: float = 10.0


class Said(msgspec.Struct, frozen=True):
    """A line of the server: something that a person wrote, or what became of something that we asked for."""

    kind: Literal["message", "beat", "ok", "busy", "refused", "failed", "stranger"]
    id: str = ""
    chat: str = ""
    who: str = ""
    text: str = ""
    seconds: float = 0.0


class LineChat(PlatformDefaults):
    """One account on one server."""

    # The gateway adapts to these: it cuts long replies, and shows nothing that grows where nothing can be edited.
    abilities = PlatformCapabilities(text_limit=500, idempotent=True)

    def __init__(self, settings: LineChatSettings) -> None:
        self.name = settings.name
        self._settings = settings

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[AsyncIterator[Incoming]]:
        """Log in and yield what people write."""
        async with self._line() as line:
            await line.ask({"receive": True})
            async with aclosing(self._arrivals(line)) as arrivals:
                yield arrivals

    async def send(self, to: Address, content: Content, key: str) -> MessageRef:
        """Post one message; the server knows a key that it has had before."""
        text = content.text.encode(errors="replace").decode()  # halves of characters cannot travel
        if not text.strip() or len(text) > self.abilities.text_limit:
            raise Rejected(f"a message has 1 to {self.abilities.text_limit} characters, and this one {len(text)}")
        async with self._line() as line:
            done = await line.ask({"say": text, "chat": to.chat_id, "key": key, "reply_to": content.reply_to})
        return MessageRef(to, done.id)

    async def _arrivals(self, line: "LineConnection") -> AsyncGenerator[Incoming, None]:
        while True:
            said = await line.read()
            if said.kind == "message":
                yield Incoming(
                    external_id=said.id,
                    address=Address(self.name, said.chat),
                    sender=Sender(said.who, said.who),
                    at=datetime.now(UTC),
                    text=said.text,
                    message_id=said.id,
                )
                await line.write({"got": said.id})  # the next one is asked for: this one was taken

    @asynccontextmanager
    async def _line(self) -> AsyncIterator["LineConnection"]:
        """Open a connection and log in."""
        told = self._settings
        try:
            async with asyncio.timeout(told.patience):
                reader, writer = await asyncio.open_connection(told.host, told.port, limit=_LONGEST_LINE)
        except (OSError, TimeoutError) as error:
            raise Unreachable(f"{told.host}:{told.port} cannot be reached: {error}") from error
        line = LineConnection(reader, writer, told.patience)
        try:
            await line.ask({"login": told.token})
            yield line
        finally:
            writer.transport.abort()


class LineConnection:
    """A connection. Whatever goes wrong with it is one of the errors that the gateway knows how to react to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, patience: float) -> None:
        self._reader = reader
        self._writer = writer
        self._patience = patience

    async def ask(self, request: dict[str, Any]) -> Said:
        """Send a request and return its answer, or raise what it says."""
        await self.write(request)
        said = await self.read()
        if said.kind != "ok":
            raise _error(said)
        return said

    async def write(self, request: dict[str, Any]) -> None:
        """Send a line."""
        try:
            self._writer.write(msgspec.json.encode(request) + b"\n")
            await self._writer.drain()
        except OSError as error:
            raise Unreachable(f"the server hung up: {error}") from error

    async def read(self) -> Said:
        """Return the next line; a server that says nothing for too long, not even a beat, is given up."""
        try:
            async with asyncio.timeout(self._patience):
                return msgspec.json.decode(await self._reader.readline(), type=Said)
        except TimeoutError as error:
            raise Unreachable(f"nothing was heard for {self._patience:g} s") from error
        except (OSError, ValueError) as error:  # hung up, or no line of this protocol
            raise Unreachable(f"the connection is of no use any more: {error}") from error


def _error(said: Said) -> PlatformError:
    match said.kind:
        case "busy":
            return SlowDown("the server asks for a pause", retry_after=timedelta(seconds=said.seconds))
        case "refused":
            return Rejected(said.text)
        case "stranger":
            return BadCredentials("the server does not know this account")
        case _:
            return Unreachable(said.text or "the server failed")


def open_platform(account: PlatformAccount) -> Platform:
    """Make the adapter from the settings and secrets of a profile; the entry point names this function."""
    token = account.secret("LINECHAT_TOKEN")
    if not token:
        raise Refused("linechat needs the secret LINECHAT_TOKEN.")
    told = {**account.options, "token": token, "name": account.name}
    try:
        return LineChat(msgspec.convert(told, LineChatSettings, strict=False))
    except msgspec.ValidationError as error:
        raise Refused(f"An option of platforms.{account.name} is wrong: {error}.") from error
