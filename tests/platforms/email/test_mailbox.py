"""A mailbox on a real server: forged senders, threads, read flags, renumbered mails, TLS and OAuth."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.platforms.email.far_side import MailFarSide, compose, mail_far_side, new_address

from talaria.contracts.platform import Content
from talaria.contracts.store import Store
from talaria.core.addresses import Address
from talaria.core.errors import BadCredentials, Rejected, Unreachable
from talaria.platforms.email.adapter import Email, check_account
from talaria.testing.mail_server import DOMAIN, MISSING, MailServer, find_mail_server
from talaria.testing.platform_suite import next_incoming

pytestmark = pytest.mark.one_engine


@pytest.fixture
async def other(far_side: MailFarSide) -> AsyncIterator[list[Email]]:
    """Further adapters that a test opens; they are closed after it."""
    opened: list[Email] = []
    yield opened
    for platform in opened:
        await platform.close()


FORGED_REPORT = f"mx.{DOMAIN}; dmarc=pass header.from={DOMAIN}; auth=pass smtp.auth="


async def test_mails_of_forged_senders_are_ignored(far_side: MailFarSide) -> None:
    mallory = new_address("mallory")
    plain = compose(far_side.alice, far_side.bot, "Give me the keys.", "forged")
    with_report = compose(far_side.alice, far_side.bot, "Give me the keys.", "forged with report")
    with_report["Authentication-Results"] = FORGED_REPORT + far_side.alice
    async with far_side.platform.connect() as arrivals:
        await far_side.submit(plain, login="")
        await far_side.submit(with_report, login="")
        await far_side.submit(plain, login=mallory, sender=mallory)
        await far_side.submit(with_report, login=mallory)
        await far_side.submit(compose(mallory, far_side.bot, "It's me.", "own name"), login=mallory)
        await far_side.says(far_side.private, "It's really me.")
        arrived = [await next_incoming(arrivals) for _ in range(2)]
    assert [(one.sender.id, one.text) for one in arrived] == [
        (mallory, "own name\n\nIt's me."),
        (far_side.alice, "It's really me."),
    ]


async def test_forged_report_is_refused_even_if_the_server_writes_none(
    far_side: MailFarSide, other: list[Email]
) -> None:
    platform = far_side.open(received_above=1)  # that of Dovecot is above the report of Exim, its own is below
    other.append(platform)
    mail = compose(far_side.alice, far_side.bot, "Give me the keys.")
    mail["Authentication-Results"] = FORGED_REPORT + far_side.alice
    async with platform.connect() as arrivals:
        with far_side.server.disturbed("silent"):
            await far_side.submit(mail, login="")
        await far_side.says(far_side.private, "It's really me.")
        assert (await next_incoming(arrivals)).text == "It's really me."


async def test_automatic_mail_is_not_received_and_stays_unread(far_side: MailFarSide) -> None:
    vacation = compose(far_side.alice, far_side.bot, "I'm away.", "away", Auto_Submitted="auto-replied")
    async with far_side.platform.connect() as arrivals:
        await far_side.submit(vacation)
        await far_side.submit(compose(far_side.alice, far_side.bot, "I'm back.", "back"))
        assert (await next_incoming(arrivals)).text == "back\n\nI'm back."
        await far_side.submit(compose(far_side.alice, far_side.bot, "And now?", "more"))
        assert (await next_incoming(arrivals)).text == "more\n\nAnd now?"
        # Requesting this mail confirmed the previous one; this one isn't confirmed yet.
        read = await asyncio.to_thread(far_side.server.flags, far_side.bot)
    assert read == {"away": False, "back": True, "more": False}


async def test_mails_from_before_the_first_start_are_not_answered(far_side: MailFarSide) -> None:
    await far_side.says(far_side.private, "from last week")
    async with far_side.platform.connect() as arrivals:
        await far_side.says(far_side.private, "from now")
        assert (await next_incoming(arrivals)).text == "from now"


async def test_renumbered_mailbox_is_read_from_the_last_position(far_side: MailFarSide) -> None:
    await far_side.says(far_side.private, "from last week")
    async with far_side.platform.connect() as arrivals:
        await far_side.says(far_side.private, "first")
        first = await next_incoming(arrivals)
        await far_side.says(far_side.private, "second")
        await next_incoming(arrivals)
    await asyncio.to_thread(far_side.server.renumber, far_side.bot)
    await far_side.says(far_side.private, "third")
    async with far_side.platform.connect() as arrivals:
        reread = [await next_incoming(arrivals)]
        while reread[-1].text != "third":
            reread.append(await next_incoming(arrivals))
    # Mails of the same second are delivered again, with the same ids.
    repeated = {one.text: one.external_id for one in reread}
    assert "second" in repeated
    assert repeated.get("first", first.external_id) == first.external_id


async def test_replies_stay_in_their_mail_thread(far_side: MailFarSide) -> None:
    async with far_side.platform.connect() as arrivals:
        await far_side.submit(compose(far_side.alice, far_side.bot, "Which trains run?", "Trip to Rome"))
        asked = await next_incoming(arrivals)
        content = Content(text="At nine.", reply_to=asked.message_id)
        ref = await far_side.platform.send(asked.address, content, "answer")
        (answer,) = await far_side.inbox()
        assert (answer["Subject"], answer["In-Reply-To"]) == ("Re: Trip to Rome", f"<{asked.message_id}>")
        reply = compose(
            far_side.alice,
            far_side.bot,
            f"Book it.\n\nOn Mon, 16 Nov 2026, Talaria <{far_side.bot}> wrote:\n> At nine.\n",
            "Re: Trip to Rome",
            References=f"{answer['References']} {answer['Message-ID']}",
            In_Reply_To=str(answer["Message-ID"]),
        )
        await far_side.submit(reply)
        booked = await next_incoming(arrivals)
    assert (booked.text, booked.address, booked.reply_to) == ("Book it.", asked.address, ref.message_id)


async def test_reply_to_our_mail_has_the_address_of_its_chat(far_side: MailFarSide) -> None:
    home = Address("email", far_side.alice)
    async with far_side.platform.connect() as arrivals:
        await far_side.platform.send(home, Content(text="The backup failed. Repeat it?"), "cron:1")
        (ours,) = await far_side.inbox()
        assert (ours["Subject"], ours["References"]) == ("The backup failed. Repeat it?", None)
        reply = compose(far_side.alice, far_side.bot, "Yes.", f"Re: {ours['Subject']}", In_Reply_To=ours["Message-ID"])
        await far_side.submit(reply)
        answered = await next_incoming(arrivals)
        assert (answered.address, answered.text) == (home, "Yes.")
        await far_side.platform.send(home, Content(text="Done.", reply_to=answered.message_id), "answer")
    assert (await far_side.inbox())[1]["Subject"] == "Re: The backup failed. Repeat it?"


async def test_sent_mail_is_stored_and_not_sent_again(far_side: MailFarSide, other: list[Email]) -> None:
    ref = await far_side.platform.send(far_side.private, Content(text="once"), "key")
    restarted = far_side.open()
    other.append(restarted)
    assert await restarted.send(far_side.private, Content(text="once"), "key") == ref
    assert len(await far_side.inbox()) == 1
    stored = await asyncio.to_thread(far_side.server.read, far_side.bot, "Sent")
    assert [mail["Message-ID"] for mail in stored] == [f"<{ref.message_id}>"]


async def test_large_mail_is_reported_without_its_content(far_side: MailFarSide, other: list[Email]) -> None:
    platform = far_side.open(mail_limit=4096)
    other.append(platform)
    async with platform.connect() as arrivals:
        await far_side.submit(compose(far_side.alice, far_side.bot, "x" * 5000, "Video"))
        received = await next_incoming(arrivals)
    assert received.text == "Video\n\n[This mail has 0 MB, too many to be read. Only its subject is known.]"


async def test_file_of_a_deleted_mail_is_refused(far_side: MailFarSide, tmp_path: Path) -> None:
    async with far_side.platform.connect() as arrivals:
        await far_side.sends_file(far_side.private, "notes.txt", b"x")
        (attachment,) = (await next_incoming(arrivals)).attachments
    await asyncio.to_thread(far_side.server.renumber, far_side.bot)
    with pytest.raises(Rejected, match="not in the inbox"):
        await far_side.platform.fetch(attachment, tmp_path)


@pytest.mark.parametrize("security", ["tls", "starttls"])
async def test_connections_are_encrypted(far_side: MailFarSide, other: list[Email], security: str) -> None:
    server = far_side.server
    ports = {
        "tls": {"imap_port": server.imaps, "smtp_port": server.smtps},
        "starttls": {"imap_port": server.imap, "smtp_port": server.smtp},
    }[security]
    options: dict[str, Any] = {"imap_security": security, "smtp_security": security, **ports}
    platform = far_side.open(ca_file=str(server.ca_file), **options)
    other.append(platform)
    async with platform.connect() as arrivals:
        await far_side.says(far_side.private, "over TLS")
        assert (await next_incoming(arrivals)).text == "over TLS"
    await platform.send(far_side.private, Content(text="as well"), "tls")
    assert len(await far_side.inbox()) == 1
    with pytest.raises(Unreachable, match="certificate verify failed"):
        await check_account(far_side.settings(**options), far_side.folder)


class TokenServer:
    """The sign-in server of a provider: renews tokens, and reports whether one is valid (RFC 7662)."""

    def __init__(self) -> None:
        self.url = ""
        self.user = ""
        self.valid: set[str] = set()
        self.renewed_with: list[str] = []
        self.next_refresh = ""
        self.refuses = False

    async def renew(self, request: web.Request) -> web.Response:
        form: Any = await request.post()
        self.renewed_with.append(form["refresh_token"])
        if self.refuses or form["client_id"] != "client" or form["client_secret"] != "shh":
            return web.json_response({"error": "invalid_grant"}, status=400)
        token = f"access-{len(self.renewed_with)}"
        self.valid = {token}
        return web.json_response({"access_token": token, "expires_in": 3600, "refresh_token": self.next_refresh})

    async def introspect(self, request: web.Request) -> web.Response:
        form: Any = await request.post()
        if form["token"] not in self.valid:
            return web.json_response({"active": False})
        return web.json_response({"active": True, "username": self.user})


@asynccontextmanager
async def token_server() -> AsyncIterator[TokenServer]:
    server = TokenServer()
    application = web.Application()
    application.add_routes([web.post("/token", server.renew), web.post("/introspect", server.introspect)])
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        await runner.cleanup()


async def test_oauth_tokens_log_in_and_are_renewed(store: Store, tmp_path: Path) -> None:
    if not find_mail_server():
        pytest.skip(MISSING)
    async with token_server() as tokens:
        with MailServer(f"{tokens.url}/introspect") as server:
            async with mail_far_side(server, store, tmp_path / "account") as far_side:
                tokens.user, tokens.next_refresh = far_side.bot, "second"
                options = {
                    "password": "",
                    "refresh_token": "first",
                    "client_id": "client",
                    "client_secret": "shh",
                    "token_url": f"{tokens.url}/token",
                }
                platform = far_side.open(**options)
                async with platform.connect() as arrivals:
                    await far_side.says(far_side.private, "with a token")
                    assert (await next_incoming(arrivals)).text == "with a token"
                await platform.send(far_side.private, Content(text="as well"), "oauth")
                assert len(await far_side.inbox()) == 1
                tokens.valid.clear()  # expired early: another one is requested
                async with platform.connect():
                    pass
                await platform.close()
                await check_account(far_side.settings(**options), far_side.folder)
                assert tokens.renewed_with == ["first", "second", "second"]
                tokens.refuses = True
                with pytest.raises(BadCredentials, match="invalid_grant"):
                    await check_account(far_side.settings(**options), far_side.folder)


async def test_dead_servers_are_reported(far_side: MailFarSide) -> None:
    for changes in ({"imap_port": 9}, {"smtp_port": 9}):
        with pytest.raises(Unreachable, match="can't be reached"):
            await check_account(far_side.settings(**changes), far_side.folder)
