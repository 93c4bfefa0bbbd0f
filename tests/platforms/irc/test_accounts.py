"""Accounts of IRC services: login with SASL over TLS, and verified senders. Server and services are real."""

import hashlib
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from tests.platforms.irc.far_side import PASSWORD, IrcFarSide, Person

from talaria.contracts.platform import Content
from talaria.contracts.setup import NetworkTrial
from talaria.contracts.store import Store
from talaria.core.addresses import Address
from talaria.core.errors import BadCredentials, Rejected, Unreachable
from talaria.core.ids import new_id
from talaria.platforms.irc.adapter import IRC_RECEIVED, Irc
from talaria.platforms.irc.setup import SETUP
from talaria.platforms.irc.wire import ReceivedLine
from talaria.platforms.received_queue import ReceivedQueue
from talaria.testing.platform_suite import FailuresSuite, next_incoming
from talaria.testing.system_servers import IrcServer, make_certificate

pytestmark = pytest.mark.one_engine


async def join_stranger(there: IrcFarSide) -> Person:
    """Return a person without an account in the channel."""
    stranger = Person(f"mal{new_id()[-6:]}")
    await stranger.open(there.server.port)
    there.stack.callback(stranger.close)
    await stranger.send(f"JOIN {there.channel}")
    await stranger.line_with(" 366 ")
    return stranger


async def test_account_identifies_the_sender_after_a_nick_change(services_side: IrcFarSide) -> None:
    async with services_side.platform.connect() as arrivals:
        await services_side.says(services_side.private, "hello")
        first = await next_incoming(arrivals)
        await services_side.person.send(f"NICK {services_side.person.nick}2")
        await services_side.says(services_side.private, "again")
        second = await next_incoming(arrivals)
        await services_side.platform.send(second.address, Content(text="hello, both of you"), "answer")
    assert (first.sender.id, second.sender.id) == (services_side.person.nick, services_side.person.nick)
    assert first.address == second.address == Address("irc", services_side.person.nick)
    seen = await services_side.person.messages(f"{services_side.person.nick}2", sender=services_side.settings.nick)
    assert seen == ["hello, both of you"]


async def test_nick_without_login_does_not_identify_an_account(services_side: IrcFarSide) -> None:
    stranger = await join_stranger(services_side)
    name = services_side.person.nick
    async with services_side.platform.connect() as arrivals:
        await services_side.person.send("NICK away" + name)
        await services_side.person.catch_up()
        await stranger.send(f"NICK {name}", f"PRIVMSG {services_side.settings.nick} :it's me")
        await stranger.send(f"PRIVMSG {services_side.channel} :{services_side.settings.nick}: it's me")
        received = await next_incoming(arrivals)
        await stranger.line_with("I only talk to people who are logged in")
    assert received.address.chat_id == services_side.channel
    assert received.sender.id.startswith(f"unverified:{name}!")


async def test_reply_for_an_account_is_not_sent_to_another_user_of_its_nick(services_side: IrcFarSide) -> None:
    stranger = await join_stranger(services_side)
    name = services_side.person.nick
    await services_side.person.send("NICK away" + name)
    await services_side.person.catch_up()
    await stranger.send(f"NICK {name}")
    await stranger.catch_up()
    with pytest.raises(Rejected, match="not logged in"):
        await services_side.platform.send(Address("irc", name), Content(text="secret"), "secret")
    assert not [line for line in await stranger.catch_up() if "secret" in line]


async def test_account_is_looked_up_if_the_server_does_not_send_it(services_side: IrcFarSide, store: Store) -> None:
    """A line that was stored without its account, as by a server without account-tag."""
    person, settings = services_side.person, services_side.settings
    line = ReceivedLine(f"{person.nick}!{person.nick[:9]}@127.0.0.1", settings.nick, "hello", datetime.now(UTC))
    forged = ReceivedLine(f"{person.nick}!other@127.0.0.1", services_side.channel, "hello", datetime.now(UTC))
    await ReceivedQueue(store, IRC_RECEIVED, "irc").add([line, forged])
    async with services_side.platform.connect() as arrivals:
        received = [await next_incoming(arrivals) for _ in range(2)]
    assert [one.sender.id for one in received] == [person.nick, f"unverified:{forged.source}"]


async def test_wrong_password_is_reported_without_the_password(services_side: IrcFarSide) -> None:
    await FailuresSuite().test_revoked_credentials_are_reported_without_the_secret(services_side)


async def test_server_without_sasl_is_refused(plain_side: IrcFarSide, store: Store) -> None:
    settings = msgspec.structs.replace(plain_side.settings, password=PASSWORD)
    platform = Irc(settings, store)
    with pytest.raises(BadCredentials, match="offers no SASL"):
        await platform.send(plain_side.private, Content(text="hello"), "key")


async def test_certificate_logs_in_over_tls(services_side: IrcFarSide, store: Store, tmp_path: Path) -> None:
    make_certificate(tmp_path / "cert.pem", tmp_path / "key.pem")
    both = tmp_path / "both.pem"
    both.write_text((tmp_path / "cert.pem").read_text() + (tmp_path / "key.pem").read_text())
    fingerprint = hashlib.sha256(ssl.PEM_cert_to_DER_cert((tmp_path / "cert.pem").read_text())).hexdigest()
    await services_side.owner.send(f"PRIVMSG NickServ :CERT ADD {fingerprint}")
    await services_side.owner.line_with("NOTICE")
    server: IrcServer = services_side.server
    settings = msgspec.structs.replace(
        services_side.settings,
        port=server.tls_port,
        tls=True,
        ca_file=server.certificate,
        password="",
        certificate=str(both),
        patience=timedelta(seconds=60),
    )
    platform = Irc(settings, store)
    await platform.send(services_side.private, Content(text="over TLS"), "key")
    await services_side.person.send(f"WHOIS {settings.nick}")
    account = await services_side.person.line_with(" 330 ")
    await platform.close()
    assert f" {services_side.owner.nick} " in account
    assert await services_side.person.messages(services_side.person.nick, sender=settings.nick) == ["over TLS"]


async def test_untrusted_certificate_of_the_server_is_refused(services_side: IrcFarSide, store: Store) -> None:
    server: IrcServer = services_side.server
    settings = msgspec.structs.replace(
        services_side.settings, port=server.tls_port, tls=True, patience=timedelta(seconds=60)
    )
    with pytest.raises(Unreachable, match="not trusted"):
        await Irc(settings, store).send(services_side.private, Content(text="hello"), "key")


async def test_setup_logs_in_with_the_answers(services_side: IrcFarSide) -> None:
    check = next(one.check for one in SETUP.questions if one.name == "IRC_PASSWORD")
    assert check
    server = f"irc://127.0.0.1:{services_side.server.port}"
    options = {"nick": f"try{services_side.owner.nick}", "account": services_side.owner.nick}
    right = await check(NetworkTrial({"IRC_SERVER": server, "IRC_PASSWORD": PASSWORD}, options))
    wrong = await check(NetworkTrial({"IRC_SERVER": server, "IRC_PASSWORD": "wrong-horse"}, options))
    nowhere = await check(NetworkTrial({"IRC_SERVER": "irc://127.0.0.1:9"}, options))
    assert right.sentence == f"The IRC server accepted the account {services_side.owner.nick}."
    assert (right.outcome, wrong.outcome, nowhere.outcome) == ("right", "refused", "unreachable")
    assert "wrong-horse" not in wrong.sentence
