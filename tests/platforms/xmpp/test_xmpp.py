"""XMPP specifics: rooms with and without real addresses, archives, copies, corrections, and verified senders."""

import asyncio
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from tests.platforms.dead_connection import running_receiver
from tests.platforms.xmpp.far_side import (
    CORRECTION,
    MUC,
    OOB,
    PASSWORD,
    REACTIONS,
    REPLY,
    Person,
    XmppFarSide,
)

from talaria.contracts.platform import Attachment, Content
from talaria.contracts.store import Store
from talaria.core.addresses import Address
from talaria.core.errors import BadCredentials, Rejected, Unreachable
from talaria.core.messages import File
from talaria.platforms.xmpp.adapter import Xmpp
from talaria.platforms.xmpp.xml_stream import CLIENT, make
from talaria.testing.platform_suite import next_incoming
from talaria.testing.system_servers import DOMAIN
from talaria.testing.wait import until

pytestmark = pytest.mark.one_engine
MUC_USER, CARBONS, FORWARD = f"{MUC}#user", "urn:xmpp:carbons:2", "urn:xmpp:forward:0"


async def test_adapter_reconnects_and_rejoins_after_a_broken_connection(far_side: XmppFarSide, store: Store) -> None:
    async with running_receiver(far_side.platform, store) as there:
        await there.until("connected")
        await far_side.says(far_side.private, "before")
        await there.until("connected", "before")
        far_side.wire.die()
        await there.until("waiting")
        assert far_side.group
        await far_side.says(far_side.group, "meanwhile in the room")
        await far_side.says(far_side.private, "meanwhile")
        far_side.wire.revive()
        await there.until("connected", "meanwhile", "meanwhile in the room")
        await far_side.says(far_side.group, "after")
        await there.until("connected", "after")
    assert sorted(there.received) == ["after", "before", "meanwhile", "meanwhile in the room"]


async def test_room_message_has_the_address_of_its_author(far_side: XmppFarSide) -> None:
    assert far_side.group
    async with far_side.platform.connect() as arrivals:
        await far_side.says(far_side.group, "hello")
        live = await next_incoming(arrivals)
    await far_side.says(far_side.group, "are you there?")
    async with far_side.platform.connect() as arrivals:
        missed = await next_incoming(arrivals)
        if missed.text == "hello":
            missed = await next_incoming(arrivals)
    assert (live.sender.id, live.sender.name) == (far_side.person.jid, far_side.person.user)
    assert (missed.text, missed.sender.id) == ("are you there?", far_side.person.jid)


async def test_nick_in_an_anonymous_room_does_not_identify_the_sender(far_side: XmppFarSide) -> None:
    await _configure(far_side.person, far_side.room, "muc#roomconfig_whois", "moderators")
    assert far_side.group
    forged = make(MUC_USER, "x", None, make(MUC_USER, "item", {"jid": "owner@localhost"}))
    async with far_side.platform.connect() as arrivals:
        await far_side.person.say(far_side.room, "talaria: live", forged, kind="groupchat")
        live = await next_incoming(arrivals)
    await far_side.person.say(far_side.room, "talaria: missed", forged, kind="groupchat")
    async with far_side.platform.connect() as arrivals:
        missed = await next_incoming(arrivals)
        if missed.text == "live":
            missed = await next_incoming(arrivals)
    unverified = f"unverified:{far_side.room}/{far_side.person.user}"
    assert (live.text, live.sender.id) == ("live", unverified)
    assert (missed.text, missed.sender.id) == ("missed", unverified)


async def test_private_message_through_a_room_is_ignored(far_side: XmppFarSide) -> None:
    async with far_side.platform.connect() as arrivals:
        await far_side.person.say(f"{far_side.room}/talaria", "I am the owner, believe me")
        await far_side.says(far_side.private, "and this is me")
        assert (await next_incoming(arrivals)).text == "and this is me"


async def test_forged_copy_is_ignored(far_side: XmppFarSide) -> None:
    """A person claims that our server copied a message of another person."""
    inner = make(CLIENT, "message", {"from": f"owner@{DOMAIN}/x", "to": far_side.settings.jid, "type": "chat"})
    inner.append(make(CLIENT, "body", None, "delete everything"))
    forged = make(CARBONS, "received", None, make(FORWARD, "forwarded", None, inner))
    result = make("urn:xmpp:mam:2", "result", {"queryid": "1", "id": "1"}, make(FORWARD, "forwarded", None, inner))
    async with far_side.platform.connect() as arrivals:
        await far_side.person.say(far_side.settings.jid, "", forged)
        await far_side.person.say(far_side.settings.jid, "", result)
        await far_side.says(far_side.private, "harmless")
        arrived = await next_incoming(arrivals)
    assert (arrived.text, arrived.sender.id) == ("harmless", far_side.person.jid)


async def test_answer_to_a_sending_connection_reaches_the_receiving_one(far_side: XmppFarSide, store: Store) -> None:
    async with far_side.platform.connect() as arrivals:
        other = Xmpp(far_side.settings, store)  # of another worker
        await other.send(far_side.private, Content(text="News."), "news")
        (news,) = await far_side.person.messages(sender=far_side.settings.jid)
        await far_side.person.say(news.get("from", ""), "thanks")
        assert (await next_incoming(arrivals)).text == "thanks"
        await other.close()


async def test_correction_is_reported_as_an_edit(far_side: XmppFarSide) -> None:
    async with far_side.platform.connect() as arrivals:
        first = await far_side.person.say(far_side.settings.jid, "tomorow")
        second = await far_side.person.say(
            far_side.settings.jid, "tomorrow", make(CORRECTION, "replace", {"id": first})
        )
        wrong, right = await next_incoming(arrivals), await next_incoming(arrivals)
    assert (wrong.message_id, wrong.edited, right.message_id, right.edited) == (first, False, first, True)
    assert (right.text, second in right.external_id) == ("tomorrow", True)


async def test_reply_and_reaction_in_a_room_are_addressed_to_us(far_side: XmppFarSide) -> None:
    assert far_side.group
    async with far_side.platform.connect() as arrivals:
        ref = await far_side.platform.send(far_side.group, Content(text="Shall I?"), "ask")
        archived = await far_side.archive_id(ref.message_id)
        author = f"{far_side.room}/talaria"
        await far_side.person.say(
            far_side.room, "yes", make(REPLY, "reply", {"id": archived, "to": author}), kind="groupchat"
        )
        await far_side.reacts(far_side.group, ref.message_id, "👍")
        answer, reaction = await next_incoming(arrivals), await next_incoming(arrivals)
    assert (answer.text, answer.addressed) == ("yes", True)
    assert (reaction.reaction, reaction.message_id, reaction.addressed) == ("👍", ref.message_id, True)


async def test_edit_and_reaction_are_sent_to_a_room(far_side: XmppFarSide) -> None:
    assert far_side.group
    async with far_side.platform.connect() as arrivals:
        await far_side.says(far_side.group, "hello")
        asked = await next_incoming(arrivals)
        ref = await far_side.platform.send(far_side.group, Content(text="Helo.", reply_to=asked.message_id), "key")
        await far_side.platform.edit(ref, Content(text="Hello."))
        await far_side.adapter.react(msgspec.structs.replace(ref, message_id=asked.message_id), "👀")
    (shown,) = await far_side.seen(far_side.group)
    assert (shown.text, shown.message_id) == ("Hello.", ref.message_id)
    marks = [
        one for one in await far_side.person.messages(sender=far_side.room) if one.find(f"{{{REACTIONS}}}reactions")
    ]
    assert len(marks) == 1


async def test_nick_in_use_is_replaced_and_recognised(far_side: XmppFarSide) -> None:
    rival = Person(far_side.server, f"rival{far_side.person.user}")
    await rival.open()
    await rival.enter(far_side.room, "talaria")
    async with far_side.platform.connect() as arrivals:
        await far_side.person.say(far_side.room, "talaria_: under your other name", kind="groupchat")
        assert (await next_incoming(arrivals)).text == "under your other name"
    await rival.close()


async def test_room_is_joined_again_after_a_kick(far_side: XmppFarSide) -> None:
    assert far_side.group
    async with far_side.platform.connect() as arrivals:
        item = make(f"{MUC}#admin", "item", {"nick": "talaria", "role": "none"})
        await far_side.person.connection.request("set", make(f"{MUC}#admin", "query", None, item), far_side.room)
        await far_side.says(far_side.group, "while you were out")
        assert (await next_incoming(arrivals)).text == "while you were out"


async def test_room_that_is_not_configured_is_refused(far_side: XmppFarSide) -> None:
    with pytest.raises(Rejected, match="not one of the rooms"):
        await far_side.platform.send(Address("xmpp", "other@rooms.localhost", "group"), Content(text="hello"), "key")


async def test_room_with_a_password_is_joined_with_the_configured_password(far_side: XmppFarSide, store: Store) -> None:
    await _configure(far_side.person, far_side.room, "muc#roomconfig_roomsecret", "open sesame")
    assert far_side.group
    with pytest.raises(Rejected, match="not-authorized"):
        await far_side.platform.send(far_side.group, Content(text="hello"), "key")
    settings = msgspec.structs.replace(far_side.settings, room_passwords={far_side.room: "open sesame"})
    platform = Xmpp(settings, store)
    await platform.send(far_side.group, Content(text="hello"), "key")
    await platform.close()
    assert [one.text for one in await far_side.seen(far_side.group)] == ["hello"]


async def test_message_sent_before_a_crash_is_not_repeated(far_side: XmppFarSide, store: Store) -> None:
    """The next process finds its message in the archive, and sends only the message that isn't there."""
    assert far_side.group
    for platform in (Xmpp(far_side.settings, store), Xmpp(far_side.settings, store)):
        await platform.send(far_side.private, Content(text="one"), "one")
        await platform.send(far_side.group, Content(text="two"), "two")
        await platform.close()
    await far_side.platform.send(far_side.private, Content(text="three"), "three")
    assert [one.text for one in await far_side.seen(far_side.private)] == ["one", "three"]
    assert [one.text for one in await far_side.seen(far_side.group)] == ["two"]


async def test_repeated_file_is_shown_once(far_side: XmppFarSide, store: Store, tmp_path: Path) -> None:
    path = tmp_path / "picture.png"
    path.write_bytes(b"not really")
    content = Content(text="Look.", files=(File(str(path), path.name, "image/png"),))
    for platform in (Xmpp(far_side.settings, store), Xmpp(far_side.settings, store)):
        await platform.send(far_side.private, content, "file")
        await platform.close()
    seen = await far_side.seen(far_side.private)
    assert [(one.text, one.files) for one in seen] == [("Look.", ()), ("", ("picture.png",))]


async def test_file_larger_than_the_server_allows_is_refused(
    far_side: XmppFarSide, store: Store, tmp_path: Path
) -> None:
    path = tmp_path / "large.bin"
    path.write_bytes(bytes(2 * 1024 * 1024))
    platform = Xmpp(msgspec.structs.replace(far_side.settings, file_limit=10**8), store)
    with pytest.raises(Rejected, match="limit of the server is 1048576"):
        await platform.send(far_side.private, Content(text="Here.", files=(File(str(path), "large.bin"),)), "key")
    await platform.close()
    assert await far_side.seen(far_side.private) == []


@pytest.mark.parametrize("address", ["http://127.0.0.1:{port}/x", "https://127.0.0.1:{port}/x", "https://[::1]/x"])
async def test_file_on_this_machine_is_not_fetched(far_side: XmppFarSide, tmp_path: Path, address: str) -> None:
    url = address.format(port=far_side.server.port)
    with pytest.raises(Rejected):
        await far_side.platform.fetch(Attachment(url, "document", "x"), tmp_path / "files")
    assert not (tmp_path / "files").exists()


async def test_file_beyond_the_limit_is_not_fetched(far_side: XmppFarSide, tmp_path: Path) -> None:
    url = await far_side.person.upload("large.bin", bytes(600 * 1024))
    with pytest.raises(Rejected, match="larger than the limit"):
        await far_side.platform.fetch(Attachment(url, "document", "large.bin"), tmp_path)


async def test_file_name_from_a_url_stays_inside_the_folder(far_side: XmppFarSide, tmp_path: Path) -> None:
    url = await far_side.person.upload("notes.txt", b"text")
    async with far_side.platform.connect() as arrivals:
        link = url.replace("notes.txt", "%2E%2E%2Fnotes.txt")
        await far_side.person.say(far_side.settings.jid, link, make(OOB, "x", None, make(OOB, "url", None, link)))
        (attachment,) = (await next_incoming(arrivals)).attachments
        assert attachment.name == "../notes.txt"
        path = await far_side.platform.fetch(msgspec.structs.replace(attachment, reference=url), tmp_path)
    assert path == tmp_path / "notes.txt"


async def test_encrypted_message_is_explained_once(far_side: XmppFarSide) -> None:
    encrypted = make("eu.siacs.conversations.axolotl", "encrypted")
    async with far_side.platform.connect() as arrivals:
        for _ in range(2):
            await far_side.person.say(far_side.settings.jid, "I sent you an OMEMO message", encrypted)
        await far_side.says(far_side.private, "in clear text")
        assert (await next_incoming(arrivals)).text == "in clear text"
    (notice,) = await far_side.person.texts(sender=far_side.settings.jid)
    assert "OMEMO" in notice


async def test_presence_is_shown_only_to_people_who_may_talk(far_side: XmppFarSide, store: Store) -> None:
    stranger = Person(far_side.server, f"stranger{far_side.person.user}")
    await stranger.open()

    async def may_join(address: Address, sender: object) -> bool:
        return address.chat_id == far_side.person.jid

    platform = Xmpp(far_side.settings, store, may_join=may_join)
    async with running_receiver(platform, store) as there:
        await there.until("connected")
        for one in (stranger, far_side.person):
            await one.connection.send(make(CLIENT, "presence", {"to": far_side.settings.jid, "type": "subscribe"}))
            await one.connection.ping()
        await until(lambda: _sees(far_side.person, far_side.settings.jid))
    assert not _sees(stranger, far_side.settings.jid)
    await platform.close()
    await stranger.close()


async def test_exclamation_mark_starts_a_command(far_side: XmppFarSide) -> None:
    assert far_side.group
    async with far_side.platform.connect() as arrivals:
        for text in ("!new topic", "/help", "!important"):
            await far_side.says(far_side.private, text)
        await far_side.says(far_side.group, "!help")
        texts = [(await next_incoming(arrivals)).text for _ in range(4)]
    assert texts == ["/new topic", "/help", "!important", "/help"]


async def test_wrong_certificate_ends_the_connection(far_side: XmppFarSide, store: Store) -> None:
    for port, direct in ((far_side.server.port, False), (far_side.server.tls_port, True)):
        settings = msgspec.structs.replace(far_side.settings, port=port, direct_tls=direct, ca_file="")
        platform = Xmpp(settings, store)
        with pytest.raises(Unreachable, match="not trusted"):
            await platform.send(far_side.private, Content(text="hello"), "key")
        await platform.close()


async def test_message_is_sent_over_direct_tls(far_side: XmppFarSide, store: Store) -> None:
    settings = msgspec.structs.replace(far_side.settings, port=far_side.server.tls_port, direct_tls=True)
    platform = Xmpp(settings, store)
    await platform.send(far_side.private, Content(text="hello"), "key")
    await platform.close()
    assert [one.text for one in await far_side.seen(far_side.private)] == ["hello"]


async def test_wrong_password_is_reported_without_the_password(far_side: XmppFarSide, store: Store) -> None:
    platform = Xmpp(msgspec.structs.replace(far_side.settings, password="wrong horse"), store)
    with pytest.raises(BadCredentials) as refused:
        await platform.send(far_side.private, Content(text="hello"), "key")
    assert "wrong horse" not in str(refused.value)
    assert PASSWORD not in str(refused.value)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"<?xml version='1.0'?><!DOCTYPE x [<!ENTITY a 'b'>]><x/>",
        b"<stream:stream xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams'><stream:features/>",
        (
            b"<stream:stream xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams'><stream:features>"
            b"<starttls xmlns='urn:ietf:params:xml:ns:xmpp-tls'/></stream:features>"
            b"<proceed xmlns='urn:ietf:params:xml:ns:xmpp-tls'/><message/>"
        ),
    ],
    ids=["http", "entities", "no-encryption", "injected"],
)
async def test_insecure_or_invalid_server_gets_no_login(far_side: XmppFarSide, store: Store, answer: bytes) -> None:
    ended = asyncio.Event()
    received = b""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal received
        writer.write(answer)
        received = await reader.read()
        writer.transport.abort()
        ended.set()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        platform = Xmpp(msgspec.structs.replace(far_side.settings, port=port, patience=timedelta(seconds=60)), store)
        with pytest.raises(Unreachable):
            await platform.send(far_side.private, Content(text="hello"), "key")
        await until(ended.is_set)
        await platform.close()
    assert b"auth" not in received


async def _configure(person: Person, room: str, field: str, value: str) -> None:
    """Configure a room as its owner, the person who created it."""
    entries = [("FORM_TYPE", f"{MUC}#roomconfig"), (field, value)]
    if field == "muc#roomconfig_roomsecret":
        entries.append(("muc#roomconfig_passwordprotectedroom", "1"))
    form = make("jabber:x:data", "x", {"type": "submit"})
    for name, one in entries:
        form.append(make("jabber:x:data", "field", {"var": name}, make("jabber:x:data", "value", None, one)))
    await person.connection.request("set", make(f"{MUC}#owner", "query", None, form), room)


def _sees(person: Person, jid: str) -> bool:
    presences = [one for one in person.stanzas if one.tag == f"{{{CLIENT}}}presence"]
    return any(one.get("from", "").startswith(f"{jid}/") and not one.get("type") for one in presences)
