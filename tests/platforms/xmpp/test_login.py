"""Login and DNS of XMPP: SCRAM with the examples of its specifications, invalid XML, and SRV records."""

import asyncio
import base64
import hashlib
from typing import cast

import dns.asyncresolver
import dns.flags
import dns.message
import dns.rrset
import pytest

from talaria.core.errors import Refused
from talaria.platforms.xmpp.scram import LoginRefused, ScramClient, choose_mechanism
from talaria.platforms.xmpp.servers import find_servers
from talaria.platforms.xmpp.settings import read_settings
from talaria.platforms.xmpp.wire import check_text
from talaria.platforms.xmpp.xml_stream import NotXmpp, StanzaParser, make, serialize

HEADER = b"<stream:stream xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams'>"


@pytest.mark.parametrize(
    ("mechanism", "nonce", "challenge", "proof", "outcome"),
    [
        (
            "SCRAM-SHA-1",  # RFC 5802, section 5
            "fyko+d2lbbFgONRv9qkxdawL",
            b"r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096",
            b"c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
            b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ=",
        ),
        (
            "SCRAM-SHA-256",  # RFC 7677, section 3
            "rOprNGfwEbeRWgbNEkqO",
            b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
            (
                b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
                b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
            ),
            b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
        ),
    ],
)
def test_scram_proofs_match_the_specification(
    mechanism: str, nonce: str, challenge: bytes, proof: bytes, outcome: bytes
) -> None:
    client = ScramClient(mechanism, "user", "pencil", nonce)
    assert client.start() == f"n,,n=user,r={nonce}".encode()
    assert client.respond(challenge) == proof
    client.verify(outcome)
    with pytest.raises(LoginRefused):
        client.verify(b"v=" + base64.b64encode(hashlib.sha256(b"guessed").digest()))


@pytest.mark.parametrize(
    "challenge",
    [b"", b"r=other,s=QSXCR+Q6sek8bf92,i=4096", b"r=mine1,s=%%%,i=4096", b"r=mine1,s=QSXC,i=999999999", b"\xff"],
)
def test_invalid_challenge_is_refused(challenge: bytes) -> None:
    with pytest.raises(LoginRefused):
        ScramClient("SCRAM-SHA-1", "user", "pencil", "mine").respond(challenge)


def test_server_can_not_skip_its_proof() -> None:
    with pytest.raises(LoginRefused):
        ScramClient("SCRAM-SHA-256", "user", "pencil").verify(b"v=")


def test_strongest_mechanism_is_chosen() -> None:
    assert choose_mechanism({"PLAIN", "SCRAM-SHA-1", "SCRAM-SHA-256-PLUS", "SCRAM-SHA-256"}) == "SCRAM-SHA-256"
    assert choose_mechanism({"PLAIN", "X-OTHER"}) == "PLAIN"
    assert choose_mechanism({"ANONYMOUS"}) == ""


def test_stanzas_are_parsed_from_any_division_of_bytes() -> None:
    stanza = make(
        "jabber:client", "message", {"to": "a@b", "id": "<'&\">"}, make("jabber:client", "body", None, "ä<&>😀")
    )
    stanza.append(make("urn:other", "x", {}, make("urn:other", "y")))
    data = HEADER + serialize(stanza).encode() + b" " + serialize(stanza).encode()
    for step in (1, 2, 3, 7, len(data)):
        parser, found = StanzaParser(), []
        for at in range(0, len(data), step):
            found += parser.feed(data[at : at + step])
        assert [serialize(one) for one in found] == [serialize(stanza)] * 2


@pytest.mark.parametrize(
    "data",
    [
        b"<?xml version='1.0'?><!DOCTYPE s [<!ENTITY a 'x'>]>" + HEADER,
        HEADER + b"<!-- hidden --><message/>",
        HEADER + b"<?php echo ?><message/>",
        HEADER + b"<a>" * 200,
        HEADER + b"<message><body>" + b"x" * 3_000_000,
        b"<html>",
    ],
    ids=["entities", "comment", "instruction", "deep", "large", "other"],
)
def test_forbidden_xml_is_refused(data: bytes) -> None:
    with pytest.raises(NotXmpp):
        StanzaParser().feed(data)


def test_markdown_becomes_message_styling() -> None:
    text = (
        "# Title\n**bold** and ~~gone~~, see [docs](https://a.example/x)\n`**code**`\n```\n# **same**\n```\n2 ** 3 ** 4"
    )
    assert check_text(text) == (
        "*Title*\n*bold* and ~gone~, see docs (https://a.example/x)\n`**code**`\n```\n# **same**\n```\n2 ** 3 ** 4"
    )


@pytest.mark.parametrize(
    ("options", "jid"),
    [
        ({}, "talaria"),
        ({}, "a@b/c"),
        ({"server": "https://example.org"}, "a@b"),
        ({"server": "host:port"}, "a@b"),
        ({"rooms": "garden"}, "a@b"),
        ({"ca_file": "/nowhere"}, "a@b"),
        ({"file_limit": "-1"}, "a@b"),
        ({"color": "red"}, "a@b"),
    ],
)
def test_invalid_settings_are_refused(options: dict[str, str], jid: str) -> None:
    with pytest.raises(Refused):
        read_settings("xmpp", options, jid, "")


def test_server_rooms_and_passwords_are_read_from_settings() -> None:
    options = {"server": "xmpps://chat.example.org", "rooms": "A@rooms.example.org, b@rooms.example.org=pass=word"}
    settings = read_settings("xmpp", options, " Bot@Example.org ", "secret")
    assert (settings.jid, settings.nick, settings.domain) == ("bot@example.org", "bot", "example.org")
    assert (settings.host, settings.port, settings.direct_tls) == ("chat.example.org", 5223, True)
    assert settings.rooms == ("a@rooms.example.org", "b@rooms.example.org")
    assert settings.room_passwords == {"b@rooms.example.org": "pass=word"}


class NameServer(asyncio.DatagramProtocol):
    """A name server for one zone."""

    def __init__(self, records: dict[str, list[str]]) -> None:
        self._records = records

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        query = dns.message.from_wire(data)
        answer = dns.message.make_response(query)
        answer.flags |= dns.flags.AA
        name = query.question[0].name
        if records := self._records.get(name.to_text()):
            answer.answer.append(dns.rrset.from_text(name, 60, "IN", "SRV", *records))
        self._transport.sendto(answer.to_wire(), addr)


async def test_servers_are_read_from_dns_in_priority_order() -> None:
    records = {
        "_xmpp-client._tcp.example.org.": ["20 0 5222 b.example.org.", "5 10 5222 a.example.org."],
        "_xmpps-client._tcp.example.org.": ["5 90 443 tls.example.org."],
        "_xmpp-client._tcp.without.example.": ["0 0 0 ."],
    }
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(lambda: NameServer(records), ("127.0.0.1", 0))
    resolver = dns.asyncresolver.Resolver(configure=False)
    resolver.nameservers, resolver.port = ["127.0.0.1"], transport.get_extra_info("sockname")[1]
    try:
        found = await find_servers("example.org", resolver)
        fallback = await find_servers("other.example", resolver)
        without = await find_servers("without.example", resolver)
    finally:
        transport.close()
    assert found == [
        ("tls.example.org", 443, True),
        ("a.example.org", 5222, False),
        ("b.example.org", 5222, False),
    ]
    assert fallback == [("other.example", 5222, False)]
    assert without == [("without.example", 5222, False)]
