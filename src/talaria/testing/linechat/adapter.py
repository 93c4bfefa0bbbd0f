"""The smallest adapter: a chat of JSON lines over TCP."""

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


class ServerLine(msgspec.Struct, frozen=True):
    """A line from the server: a message of a person, a heartbeat, or the answer to a request."""

    kind: Literal["message", "beat", "ok", "busy", "refused", "failed", "unauthorized"]
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
        """Post one message; the server ignores a key that it has seen before."""
        text = content.text.encode(errors="replace").decode()  # lone surrogates can't be encoded
        if not text.strip() or len(text) > self.abilities.text_limit:
            raise Rejected(f"a message has 1 to {self.abilities.text_limit} characters, and this one {len(text)}")
        async with self._line() as line:
            done = await line.ask({"say": text, "chat": to.chat_id, "key": key, "reply_to": content.reply_to})
        return MessageRef(to, done.id)

    async def _arrivals(self, line: "LineConnection") -> AsyncGenerator[Incoming, None]:
        while True:
            received = await line.read()
            if received.kind == "message":
                yield Incoming(
                    external_id=received.id,
                    address=Address(self.name, received.chat),
                    sender=Sender(received.who, received.who),
                    at=datetime.now(UTC),
                    text=received.text,
                    message_id=received.id,
                )
                await line.write({"got": received.id})  # the next one was requested, so this one is stored

    @asynccontextmanager
    async def _line(self) -> AsyncIterator["LineConnection"]:
        """Open a connection and log in."""
        settings = self._settings
        try:
            async with asyncio.timeout(settings.patience):
                reader, writer = await asyncio.open_connection(settings.host, settings.port, limit=_LONGEST_LINE)
        except (OSError, TimeoutError) as error:
            raise Unreachable(f"{settings.host}:{settings.port} can't be reached: {error}") from error
        line = LineConnection(reader, writer, settings.patience)
        try:
            await line.ask({"login": settings.token})
            yield line
        finally:
            writer.transport.abort()


class LineConnection:
    """A connection. Every failure becomes one of the errors that the gateway handles."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, patience: float) -> None:
        self._reader = reader
        self._writer = writer
        self._patience = patience

    async def ask(self, request: dict[str, Any]) -> ServerLine:
        """Send a request and return its answer, or raise what it says."""
        await self.write(request)
        received = await self.read()
        if received.kind != "ok":
            raise _error(received)
        return received

    async def write(self, request: dict[str, Any]) -> None:
        """Send a line."""
        try:
            self._writer.write(msgspec.json.encode(request) + b"\n")
            await self._writer.drain()
        except OSError as error:
            raise Unreachable(f"the server closed the connection: {error}") from error

    async def read(self) -> ServerLine:
        """Return the next line; raise `Unreachable` if not even a heartbeat arrives in time."""
        try:
            async with asyncio.timeout(self._patience):
                return msgspec.json.decode(await self._reader.readline(), type=ServerLine)
        except TimeoutError as error:
            raise Unreachable(f"nothing arrived for {self._patience:g} s") from error
        except (OSError, ValueError) as error:  # closed, or not a line of this protocol
            raise Unreachable(f"the connection is broken: {error}") from error


def _error(received: ServerLine) -> PlatformError:
    match received.kind:
        case "busy":
            return SlowDown("the server asks for a pause", retry_after=timedelta(seconds=received.seconds))
        case "refused":
            return Rejected(received.text)
        case "unauthorized":
            return BadCredentials("the server doesn't know this account")
        case _:
            return Unreachable(received.text or "the server failed")


def open_platform(account: PlatformAccount) -> Platform:
    """Make the adapter from the settings and secrets of a profile; the entry point names this function."""
    token = account.secret("LINECHAT_TOKEN")
    if not token:
        raise Refused("linechat needs the secret LINECHAT_TOKEN.")
    options = {**account.options, "token": token, "name": account.name}
    try:
        return LineChat(msgspec.convert(options, LineChatSettings, strict=False))
    except msgspec.ValidationError as error:
        raise Refused(f"An option of platforms.{account.name} is wrong: {error}.") from error
