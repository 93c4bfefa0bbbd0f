"""The server of the chat of lines, with Ann at it: the far side of the example."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec

from talaria.core.addresses import Address
from talaria.testing.linechat.adapter import LineChat, LineChatSettings, ServerLine
from talaria.testing.platform_suite import FailureKind, VisibleMessage

TOKEN = "line-by-line"  # noqa: S105 (of a server for tests)
_BEAT = 0.2


class LineChatServer:
    """Stores Ann's messages until they are acknowledged, and the messages to her."""

    def __init__(self) -> None:
        self.seen: dict[str, VisibleMessage] = {}
        self.failure: FailureKind | None = None
        self.waiting: dict[str, ServerLine] = {}
        self._news = asyncio.Event()
        self._number = 0
        self._lines: set[asyncio.StreamWriter] = set()

    def say(self, chat: str, text: str) -> None:
        """Let Ann write something."""
        self._number += 1
        number = f"m{self._number}"
        self.waiting[number] = ServerLine("message", id=number, chat=chat, who="ann", text=text)
        self._news.set()

    def hang_up(self) -> None:
        """Break all connections."""
        for writer in self._lines:
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of a connection."""
        self._lines.add(writer)
        with suppress(OSError):
            while line := await reader.readline():
                request: dict[str, Any] = msgspec.json.decode(line)
                if "receive" in request:
                    _write(writer, ServerLine("ok"))
                    await self._feed(reader, writer)
                else:
                    await self._answer(writer, request)
        self._lines.discard(writer)
        writer.transport.abort()

    async def _answer(self, writer: asyncio.StreamWriter, request: dict[str, Any]) -> None:
        if "login" in request:
            known = request["login"] == TOKEN and self.failure != "revoked"
            _write(writer, ServerLine("ok" if known else "unauthorized"))
        elif self.failure == "slow_down":
            _write(writer, ServerLine("busy", seconds=3))
        elif self.failure == "failing":
            _write(writer, ServerLine("failed", text="the disk is full"))
        elif self.failure != "silent":
            _write(writer, self._post(request))

    def _post(self, request: dict[str, Any]) -> ServerLine:
        if request["chat"] != "ann":
            return ServerLine("refused", text="there is no such chat")
        made = VisibleMessage(message_id=f"p{len(self.seen)}", text=request["say"], reply_to=request["reply_to"])
        return ServerLine("ok", id=self.seen.setdefault(request["key"], made).message_id)

    async def _feed(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Hand over one message after the other, each until it is taken, with beats between."""
        while True:
            line = next(iter(self.waiting.values()), ServerLine("beat"))
            if self.failure == "deaf":
                await reader.readline()
                return
            _write(writer, line)
            if line.kind == "message":
                taken = await reader.readline()
                if not taken:
                    return
                self.waiting.pop(msgspec.json.decode(taken)["got"], None)
                continue
            self._news.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(_BEAT):
                    await self._news.wait()
            await writer.drain()


class LineChatFarSide:
    """The far side for the contract suite: Ann at the server."""

    def __init__(self, server: LineChatServer, port: int) -> None:
        self.platform = LineChat(LineChatSettings(host="127.0.0.1", port=port, token=TOKEN, patience=2.0))
        self.secret = TOKEN
        self.private = Address("linechat", "ann")
        self.group: Address | None = None
        self.thread: Address | None = None
        self.nowhere = Address("linechat", "nobody")
        self.port = port
        self._server = server

    async def says(self, at: Address, text: str, *, addressed: bool = True) -> None:
        """Let Ann write something."""
        self._server.say(at.chat_id, text)

    async def sends_file(self, at: Address, name: str, data: bytes) -> None:
        """Fail: there are no files here."""
        raise NotImplementedError

    async def presses(self, at: Address, message_id: str, label: str) -> None:
        """Fail: there are no buttons here."""
        raise NotImplementedError

    async def reacts(self, at: Address, message_id: str, emoji: str) -> None:
        """Fail: there are no reactions here."""
        raise NotImplementedError

    async def own_reactions(self, at: Address, message_id: str) -> list[str]:
        """Fail: there are no reactions here."""
        raise NotImplementedError

    async def redelivers(self) -> bool:
        """Return false: everything is delivered once."""
        return False

    async def seen(self, at: Address) -> list[VisibleMessage]:
        """Return the messages to Ann."""
        return list(self._server.seen.values())

    async def disrupt(self, failure: FailureKind) -> bool:
        """Start a disruption."""
        if failure == "cut":
            self._server.hang_up()
        else:
            self._server.failure = failure
        return True

    async def calm(self) -> None:
        """End the disruption."""
        self._server.failure = None


@asynccontextmanager
async def linechat_far_side() -> AsyncIterator[LineChatFarSide]:
    """Open the server and the adapter."""
    server = LineChatServer()
    async with await asyncio.start_server(server.serve, "127.0.0.1", 0) as listening:
        try:
            yield LineChatFarSide(server, listening.sockets[0].getsockname()[1])
        finally:
            listening.close()
            server.hang_up()


def _write(writer: asyncio.StreamWriter, line: ServerLine) -> None:
    writer.write(msgspec.json.encode(line) + b"\n")
