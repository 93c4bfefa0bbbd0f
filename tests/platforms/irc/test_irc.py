"""IRC specifics: long lines, nicks in use, flood limits, channels, and lines that are stored first."""

import asyncio
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from tests.platforms.dead_connection import running_receiver
from tests.platforms.irc.far_side import IrcFarSide, Person

from talaria.contracts.platform import Content
from talaria.contracts.store import Store
from talaria.core.addresses import Address
from talaria.core.errors import Refused, Rejected, SlowDown, Unreachable
from talaria.platforms.irc.adapter import Irc
from talaria.platforms.irc.connection import LineBucket
from talaria.platforms.irc.settings import read_settings
from talaria.platforms.irc.wire import cut_line, parse_line, read_privmsg, sasl_lines, split_message
from talaria.testing.platform_suite import next_incoming
from talaria.testing.wait import until

pytestmark = pytest.mark.one_engine


async def test_adapter_reconnects_and_rejoins_after_a_broken_connection(plain_side: IrcFarSide, store: Store) -> None:
    async with running_receiver(plain_side.platform, store) as there:
        await there.until("connected")
        await plain_side.says(plain_side.private, "before")
        await there.until("connected", "before")
        plain_side.wire.die()
        await there.until("waiting")
        plain_side.wire.revive()
        await there.until("connected")
        assert plain_side.group
        await plain_side.says(plain_side.group, "after")
        await there.until("connected", "after")


async def test_nick_in_use_is_replaced_and_regained(plain_side: IrcFarSide) -> None:
    rival = Person(plain_side.settings.nick)
    await rival.open(plain_side.server.port)
    plain_side.stack.callback(rival.close)
    async with plain_side.platform.connect() as arrivals:
        await plain_side.person.send(f"PRIVMSG {rival.nick}_ :under your other name")
        assert (await next_incoming(arrivals)).text == "under your other name"
        await rival.send("QUIT")
        await plain_side.person.line_with(f" NICK :{rival.nick}")  # everybody in the channel sees the change
        await plain_side.says(plain_side.private, "under your name")
        assert (await next_incoming(arrivals)).text == "under your name"


async def test_channel_is_joined_again_after_a_kick(plain_side: IrcFarSide) -> None:
    async with plain_side.platform.connect() as arrivals:
        await plain_side.person.line_with(f":{plain_side.settings.nick}!")
        await plain_side.person.send(f"KICK {plain_side.channel} {plain_side.settings.nick} :out")
        await plain_side.person.line_with(" KICK ")
        await plain_side.person.line_with(" JOIN ")
        assert plain_side.group
        await plain_side.says(plain_side.group, "welcome back")
        assert (await next_incoming(arrivals)).text == "welcome back"


async def test_message_to_an_unconfigured_channel_is_refused(plain_side: IrcFarSide) -> None:
    with pytest.raises(Rejected, match="not one of the channels"):
        await plain_side.platform.send(Address("irc", "#elsewhere", "group"), Content(text="hello"), "key")


async def test_exclamation_mark_starts_a_command(plain_side: IrcFarSide) -> None:
    async with plain_side.platform.connect() as arrivals:
        assert plain_side.group
        await plain_side.says(plain_side.private, "!new topic")
        await plain_side.says(plain_side.group, "!help")
        await plain_side.says(plain_side.private, "!important")
        texts = [(await next_incoming(arrivals)).text for _ in range(3)]
    assert texts == ["/new topic", "/help", "!important"]


async def test_server_that_does_not_speak_irc_is_disconnected(plain_side: IrcFarSide, store: Store) -> None:
    ended = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b":x CAP * LS\r\n")  # without the list
        await reader.read()
        writer.transport.abort()
        ended.set()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        settings = msgspec.structs.replace(plain_side.settings, port=server.sockets[0].getsockname()[1])
        with pytest.raises(Unreachable, match="no IRC"):
            await Irc(settings, store).send(plain_side.private, Content(text="hello"), "key")
        await until(ended.is_set)


async def test_flood_limit_asks_the_gateway_to_wait(plain_side: IrcFarSide, store: Store) -> None:
    settings = msgspec.structs.replace(plain_side.settings, lines_per_second=0.01, burst=3)
    platform = Irc(settings, store)
    for number in range(3):
        await platform.send(plain_side.private, Content(text=f"number {number}"), f"key:{number}")
    with pytest.raises(SlowDown) as slow:
        await platform.send(plain_side.private, Content(text="too much"), "key:3")
    await platform.close()
    assert slow.value.retry_after > timedelta(seconds=4)
    assert [one.text for one in await plain_side.seen(plain_side.private)] == [
        f"number {number}" for number in range(3)
    ]


async def test_line_bucket_allows_a_burst_and_then_delays() -> None:
    bucket = LineBucket(per_second=0.001, burst=4)
    for _ in range(4):
        await asyncio.wait_for(bucket.take(), 60)
    assert 900 < bucket.delay() <= 1000


@pytest.mark.parametrize("text", ["word " * 300, "日本" * 200, "x" * 999, "é" * 333, "😀 " * 150])
def test_long_line_is_cut_at_characters(text: str) -> None:
    pieces = list(cut_line(text.strip(), 100))
    assert all(len(piece.encode()) <= 100 for piece in pieces)
    assert "".join(pieces).replace(" ", "") == text.replace(" ", "")


def test_line_to_a_channel_with_a_long_name_is_not_truncated() -> None:
    channel, nick = "#" + "c" * 49, "n" * 30
    pieces = split_message("日" * 133, nick, channel)
    assert len(pieces) > 1
    assert "".join(pieces) == "日" * 133
    for piece in pieces:
        relayed = f":{nick}!~{'u' * 10}@{'h' * 63} PRIVMSG {channel} :{piece}\r\n"
        assert len(relayed.encode()) <= 512


def test_many_short_lines_are_joined() -> None:
    lines = split_message("\n".join("ab" for _ in range(100)), "bot", "ann")
    assert len(lines) <= 16
    assert sum(line.count("ab") for line in lines) == 100


def test_line_with_tags_is_read() -> None:
    line = parse_line(
        b"@account=ann;msgid=a\\:1;time=2026-01-02T03:04:05.678Z :ann!a@h PRIVMSG #c :\x02hi\x0f \x0304there\r\n"
    )
    assert line
    received = read_privmsg(line, {"account-tag"}, datetime.now(UTC))
    assert received
    assert (received.account, received.message_id, received.text) == ("ann", "a;1", "hi there")
    assert received.at == datetime(2026, 1, 2, 3, 4, 5, 678000, UTC)


@pytest.mark.parametrize(
    "line", [b":ann!a@h NOTICE bot :hi", b":irc.example PRIVMSG bot :hi", b":ann!a@h PRIVMSG bot :\x01VERSION\x01"]
)
def test_notices_server_lines_and_control_messages_are_ignored(line: bytes) -> None:
    message = parse_line(line)
    assert message
    assert read_privmsg(message, (), datetime.now(UTC)) is None


def test_long_password_is_sent_in_chunks() -> None:
    lines = sasl_lines("PLAIN", "ann", "p" * 295)  # 400 characters in base 64
    assert [len(line) for line in lines] == [413, 14]
    assert lines[-1] == "AUTHENTICATE +"


@pytest.mark.parametrize(
    ("server", "options", "problem"),
    [
        ("http://irc.example", {}, "must be a host"),
        ("irc.example:x", {}, "must be a host"),
        ("irc.example", {"nick": "no nick"}, "can't be a nick"),
        ("irc.example", {"channels": "lobby"}, "is no IRC channel"),
        ("irc.example", {"burst": "0"}, "burst"),
        ("irc.example", {"chanels": "#a"}, "unknown field"),
        ("irc.example", {"certificate": "/nowhere.pem"}, "names no file"),
        ("irc://irc.example", {}, "isn't sent without encryption"),
    ],
)
def test_invalid_settings_are_named(server: str, options: dict[str, str], problem: str) -> None:
    with pytest.raises(Refused, match=problem):
        read_settings("irc", options, server, password="secret")


def test_server_channels_and_keys_are_read_from_settings() -> None:
    settings = read_settings("irc", {"channels": "#a, #b=key", "nick": "helper"}, "irc.example:7000")
    assert (settings.host, settings.port, settings.tls) == ("irc.example", 7000, True)
    assert (settings.channels, settings.keys, settings.account) == (("#a", "#b"), {"#b": "key"}, "helper")
