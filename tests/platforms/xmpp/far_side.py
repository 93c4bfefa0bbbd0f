"""The far side of XMPP for the contract suite: people with their own clients, on a real Prosody behind a proxy."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from urllib.parse import unquote, urlsplit
from xml.etree.ElementTree import Element

import aiohttp
import msgspec
from tests.platforms.dead_connection import Wire

from talaria.contracts.platform import Platform
from talaria.contracts.store import Store
from talaria.core.addresses import Address
from talaria.core.ids import new_id
from talaria.platforms.xmpp.adapter import Xmpp
from talaria.platforms.xmpp.connection import XmppConnection
from talaria.platforms.xmpp.settings import XmppSettings
from talaria.platforms.xmpp.xml_stream import CLIENT, make
from talaria.testing.platform_suite import FailureKind, VisibleMessage
from talaria.testing.system_servers import DOMAIN, ROOMS, ProsodyServer
from talaria.testing.wait import until

PASSWORD = "correct-horse, =battery"
MUC = "http://jabber.org/protocol/muc"
ORIGIN, CORRECTION, REPLY = "urn:xmpp:sid:0", "urn:xmpp:message-correct:0", "urn:xmpp:reply:0"
REACTIONS, OOB, UPLOAD = "urn:xmpp:reactions:0", "jabber:x:oob", "urn:xmpp:http:upload:0"


class Person:
    """A client of a person: sends stanzas, and collects received ones."""

    def __init__(self, server: ProsodyServer, user: str) -> None:
        self.jid = f"{user}@{DOMAIN}"
        self.user = user
        self.stanzas: list[Element] = []
        self.sent: Element | None = None
        self.server = server
        settings = XmppSettings(
            jid=self.jid, password=PASSWORD, host="127.0.0.1", port=server.port, ca_file=server.certificate
        )
        self.connection = XmppConnection(settings, self.stanzas.append)

    async def open(self) -> None:
        self.server.set_password(self.user, PASSWORD)
        await self.connection.open()
        await self.connection.send(make(CLIENT, "presence"))

    async def enter(self, room: str, nick: str = "") -> None:
        nick = nick or self.user
        await self.connection.send(make(CLIENT, "presence", {"to": f"{room}/{nick}"}, make(MUC, "x")))
        own = f"{room}/{nick}"
        await until(lambda: any(one.tag.endswith("}presence") and one.get("from") == own for one in self.stanzas))

    async def say(self, to: str, text: str, *extras: Element, kind: str = "chat", message_id: str = "") -> str:
        """Send a message, which the server has processed when this returns."""
        message_id = message_id or new_id()
        stanza = make(CLIENT, "message", {"to": to, "type": kind, "id": message_id}, *extras)
        if text:
            stanza.append(make(CLIENT, "body", None, text))
        stanza.append(make(ORIGIN, "origin-id", {"id": message_id}))
        self.sent = stanza
        await self.connection.send(stanza)
        await self.connection.ping()
        if kind == "groupchat":
            await until(lambda: any(one.get("id") == message_id for one in self.stanzas))
        return message_id

    async def upload(self, name: str, data: bytes) -> str:
        """Upload a file, and return its URL."""
        request = make(UPLOAD, "request", {"filename": name, "size": str(len(data))})
        answer = await self.connection.request("get", request, f"upload.{DOMAIN}")
        put, get = answer.find(f".//{{{UPLOAD}}}put"), answer.find(f".//{{{UPLOAD}}}get")
        assert put is not None
        assert get is not None
        headers = {one.get("name", ""): one.text or "" for one in put}
        async with (
            aiohttp.ClientSession() as http,
            http.put(put.get("url", ""), data=data, headers=headers) as answered,
        ):
            assert answered.status in (200, 201)
        return get.get("url", "")

    async def messages(self, *, sender: str) -> list[Element]:
        """Return the messages of a sender so far."""
        await self.connection.ping()
        return [
            one
            for one in self.stanzas
            if one.tag == f"{{{CLIENT}}}message"
            and one.get("from", "").startswith(sender)
            and one.get("type") != "error"
        ]

    async def texts(self, *, sender: str) -> list[str]:
        """Return the texts of a sender, with corrections applied."""
        return [one.text for one in await self.visible(sender=sender) if one.text]

    async def visible(self, *, sender: str) -> list[VisibleMessage]:
        """Return the messages of a sender, as a client shows them."""
        shown: dict[str, VisibleMessage] = {}
        for one in await self.messages(sender=sender):
            body, replaced = one.findtext(f"{{{CLIENT}}}body"), one.find(f"{{{CORRECTION}}}replace")
            if body is None:
                continue
            url, reply = one.findtext(f"{{{OOB}}}x/{{{OOB}}}url"), one.find(f"{{{REPLY}}}reply")
            message = VisibleMessage(
                message_id=one.get("id", ""),
                text="" if url else body,
                reply_to=reply.get("id", "") if reply is not None else "",
                files=(unquote(urlsplit(url).path.rpartition("/")[2]),) if url else (),
            )
            if replaced is None:
                shown[message.message_id] = message
            else:
                target = replaced.get("id", "")
                shown[target] = msgspec.structs.replace(message, message_id=target)
        return list(shown.values())

    async def close(self) -> None:
        await self.connection.close()


class XmppFarSide:
    """A person and the bot on a server, and a room with both."""

    def __init__(self, server: ProsodyServer, wire: Wire, store: Store) -> None:
        unique = new_id()[-8:].lower()
        self.server = server
        self.wire = wire
        self.person = Person(server, f"ann{unique}")
        self.room = f"room{unique}@{ROOMS}"
        self.settings = XmppSettings(
            jid=f"bot{unique}@{DOMAIN}",
            password=PASSWORD,
            host="127.0.0.1",
            port=wire.port,
            ca_file=server.certificate,
            nick="talaria",
            rooms=(self.room,),
            file_limit=512 * 1024,
            patience=timedelta(seconds=5),
            silence=timedelta(seconds=6),
        )
        self.adapter = Xmpp(self.settings, store, ["new", "help"])
        self.platform: Platform = self.adapter
        self.secret = PASSWORD
        self.private = Address("xmpp", self.person.jid)
        self.group: Address | None = Address("xmpp", self.room, "group")
        self.thread: Address | None = None
        self.nowhere = Address("xmpp", f"nobody{unique}@{DOMAIN}")

    async def start(self) -> None:
        self.server.set_password(self.settings.user, PASSWORD)
        await self.person.open()
        await self.person.enter(self.room)

    async def says(self, at: Address, text: str, *, addressed: bool = True) -> None:
        if at.chat_type == "private":
            await self.person.say(self.settings.jid, text)
        else:
            await self.person.say(self.room, f"talaria: {text}" if addressed else text, kind="groupchat")

    async def sends_file(self, at: Address, name: str, data: bytes) -> None:
        url = await self.person.upload(re.sub(r"[/\\]", "_", name)[-100:], data)  # the server refuses such names, too
        await self.person.say(self.settings.jid, url, make(OOB, "x", None, make(OOB, "url", None, url)))

    async def presses(self, at: Address, message_id: str, label: str) -> None:
        raise NotImplementedError

    async def reacts(self, at: Address, message_id: str, emoji: str) -> None:
        mark = make(REACTIONS, "reaction", None, emoji)
        store = make("urn:xmpp:hints", "store")
        if at.chat_type == "private":
            await self.person.say(self.settings.jid, "", make(REACTIONS, "reactions", {"id": message_id}, mark), store)
            return
        archived = await self.archive_id(message_id)
        reactions = make(REACTIONS, "reactions", {"id": archived}, mark)
        await self.person.say(self.room, "", reactions, store, kind="groupchat")

    async def archive_id(self, message_id: str) -> str:
        """Return the id under which the room has archived a message of ours."""
        (shown,) = [one for one in await self.person.messages(sender=self.room) if one.get("id") == message_id]
        return next(one.get("id", "") for one in shown.iter("{urn:xmpp:sid:0}stanza-id"))

    async def own_reactions(self, at: Address, message_id: str) -> list[str]:
        found: list[str] = []
        for one in await self.person.messages(sender=self.settings.jid):
            reactions = one.find(f"{{{REACTIONS}}}reactions")
            if reactions is not None and reactions.get("id") == message_id:
                found = [mark.text or "" for mark in reactions]
        return found

    async def redelivers(self) -> bool:
        assert self.person.sent is not None
        await self.person.connection.send(self.person.sent)  # as a client does after it lost its connection
        await self.person.connection.ping()
        return True

    async def seen(self, at: Address) -> list[VisibleMessage]:
        sender = self.settings.jid if at.chat_type == "private" else f"{self.room}/talaria"
        return await self.person.visible(sender=sender)

    async def disrupt(self, failure: FailureKind) -> bool:
        match failure:
            case "silent" | "deaf":
                self.wire.die()
            case "cut":
                self.wire.cut()
            case "revoked":
                self.server.set_password(self.settings.user, "another-horse")
            case _:
                return False
        return True

    async def calm(self) -> None:
        self.wire.revive()


@asynccontextmanager
async def xmpp_far_side(server: ProsodyServer, store: Store) -> AsyncIterator[XmppFarSide]:
    async with AsyncExitStack() as stack:
        wire = await stack.enter_async_context(Wire(f"xmpp://127.0.0.1:{server.port}"))
        there = XmppFarSide(server, wire, store)
        stack.push_async_callback(there.adapter.close)
        stack.push_async_callback(there.person.close)
        async with asyncio.timeout(60):
            await there.start()
        yield there
