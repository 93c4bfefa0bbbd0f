"""The far side of IRC for the contract suite: people with their own clients, on a real server behind a proxy."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from itertools import count

from tests.platforms.dead_connection import Wire

from talaria.contracts.platform import Content, MessageRef, Platform
from talaria.contracts.store import Store
from talaria.core.addresses import Address
from talaria.core.ids import new_id
from talaria.platforms.irc.adapter import Irc
from talaria.platforms.irc.settings import IrcSettings
from talaria.testing.platform_suite import FailureKind, VisibleMessage
from talaria.testing.system_servers import IrcServer
from talaria.testing.wait import LIMIT

PASSWORD = "correct-horse"


class Person:
    """A client of a person: sends lines, and collects what the server sends."""

    def __init__(self, nick: str) -> None:
        self.nick = nick
        self.lines: list[str] = []
        self._numbers = count(1)
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def open(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
        await self.send(f"NICK {self.nick}", f"USER {self.nick[:9]} 0 * :{self.nick}")
        await self.line_with(" 422 ", " 376 ")

    async def send(self, *lines: str) -> None:
        self._writer.write("".join(f"{line}\r\n" for line in lines).encode())
        await self._writer.drain()

    async def line_with(self, *parts: str) -> str:
        """Return the next line that contains one of these parts."""
        while True:
            async with asyncio.timeout(LIMIT):
                data = await self._reader.readline()
            if not data:
                raise ConnectionResetError(f"{self.nick} was disconnected after {self.lines[-3:]}")
            line = data.decode().rstrip("\r\n")
            if line.startswith("PING"):
                await self.send(line.replace("PING", "PONG", 1))
                continue
            self.lines.append(line)
            if any(part in line for part in parts):
                return line

    async def catch_up(self) -> list[str]:
        """Return all lines so far: the server has processed what was sent before."""
        token = f"here{next(self._numbers)}"
        await self.send(f"PING :{token}")
        await self.line_with(f":{token}")
        return self.lines

    async def register(self) -> None:
        """Register an account with the name of the nick at the services, and log in to it."""
        await self.send(f"PRIVMSG NickServ :REGISTER {self.nick} {PASSWORD} {self.nick}@example.org")
        await self.line_with(" 900 ")

    async def messages(self, target: str, *, sender: str) -> list[str]:
        """Return the texts that a nick wrote to a channel or to us."""
        marker = f" PRIVMSG {target} :"
        lines = [line for line in await self.catch_up() if marker in line]
        return [line.partition(marker)[2] for line in lines if line.partition("!")[0].endswith(f":{sender}")]

    def close(self) -> None:
        self._writer.transport.abort()


class RecordingIrc(Irc):
    """The adapter; records the ids of sent messages, which IRC doesn't show to users."""

    def __init__(self, settings: IrcSettings, store: Store) -> None:
        super().__init__(settings, store, ["new", "help"])
        self.refs: list[MessageRef] = []

    async def send(self, to: Address, content: Content, key: str) -> MessageRef:
        self.refs.append(await super().send(to, content, key))
        return self.refs[-1]


class IrcFarSide:
    """A person and the bot on a server; with services, both have accounts."""

    def __init__(self, server: IrcServer, wire: Wire, store: Store, stack: AsyncExitStack) -> None:
        unique = new_id()[-6:]
        self.server = server
        self.wire = wire
        self.stack = stack
        self.person = Person(f"ann{unique}")
        self.owner = Person(f"own{unique}")
        self.channel = f"#room{unique}"
        has_services = bool(server.tls_port)
        self.settings = IrcSettings(
            host="127.0.0.1",
            port=int(wire.url.rpartition(":")[2]),
            tls=False,
            nick=f"bot{unique}",
            channels=(self.channel,),
            account=self.owner.nick,
            password=PASSWORD if has_services else "",
            identity="account" if has_services else "nick",
            lines_per_second=1000,
            burst=100,
            patience=timedelta(seconds=5),
            silence=timedelta(seconds=6),
        )
        self.adapter = RecordingIrc(self.settings, store)
        self.platform: Platform = self.adapter
        self.secret = PASSWORD
        self.private = Address("irc", self.person.nick)
        self.group: Address | None = Address("irc", self.channel, "group")
        self.thread: Address | None = None
        self.nowhere = Address("irc", "nobody")

    async def start(self) -> None:
        for person in (self.person, self.owner):
            await person.open(self.server.port)
            self.stack.callback(person.close)
            if self.settings.password:
                await person.register()
        await self.person.send(f"JOIN {self.channel}")
        await self.person.line_with(" 366 ")

    async def says(self, at: Address, text: str, *, addressed: bool = True) -> None:
        if at.chat_type == "private":
            await self.person.send(f"PRIVMSG {self.settings.nick} :{text}")
        else:
            named = f"{self.settings.nick}: {text}" if addressed else text
            await self.person.send(f"PRIVMSG {self.channel} :{named}")
        await self.person.catch_up()

    async def sends_file(self, at: Address, name: str, data: bytes) -> None:
        raise NotImplementedError

    async def presses(self, at: Address, message_id: str, label: str) -> None:
        raise NotImplementedError

    async def reacts(self, at: Address, message_id: str, emoji: str) -> None:
        raise NotImplementedError

    async def own_reactions(self, at: Address, message_id: str) -> list[str]:
        raise NotImplementedError

    async def redelivers(self) -> bool:
        return False

    async def seen(self, at: Address) -> list[VisibleMessage]:
        target = self.person.nick if at.chat_type == "private" else self.channel
        texts = await self.person.messages(target, sender=self.settings.nick)
        ids = [ref.message_id for ref in self.adapter.refs]
        ids += [""] * (len(texts) - len(ids))
        return [VisibleMessage(message_id=one, text=text) for one, text in zip(ids, texts, strict=False)]

    async def disrupt(self, failure: FailureKind) -> bool:
        if failure in ("silent", "deaf"):
            self.wire.die()
        elif failure == "revoked" and self.settings.password:
            await self.owner.send("PRIVMSG NickServ :SET PASSWORD another-horse")
            await self.owner.line_with("NOTICE")
        else:
            return False
        return True

    async def calm(self) -> None:
        self.wire.revive()


@asynccontextmanager
async def irc_far_side(server: IrcServer, store: Store) -> AsyncIterator[IrcFarSide]:
    async with AsyncExitStack() as stack:
        wire = await stack.enter_async_context(Wire(f"irc://127.0.0.1:{server.port}"))
        there = IrcFarSide(server, wire, store, stack)
        await there.start()
        stack.push_async_callback(there.adapter.close)
        yield there
