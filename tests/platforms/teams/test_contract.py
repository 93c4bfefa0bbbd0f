"""The contract suite on Microsoft Teams, and what only Teams has: tokens, services, channels, mentions, cards."""

import re
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from aiohttp import ClientSession
from msgspec import structs
from tests.storage.engines import StoreLocation

from talaria.contracts.platform import Button, Content
from talaria.contracts.setup import NetworkTrial
from talaria.contracts.store import Store
from talaria.core.addresses import Address
from talaria.core.errors import Refused
from talaria.core.messages import File
from talaria.platforms.jwt_check import SigningKeys, verify_token
from talaria.platforms.signatures import BadSignature
from talaria.platforms.teams.adapter import Teams
from talaria.platforms.teams.settings import TeamsSettings, read_settings
from talaria.platforms.teams.setup import SETUP
from talaria.platforms.teams.wire import break_lines
from talaria.platforms.webhook_endpoint import EndpointSettings
from talaria.testing.clock import SettableClock
from talaria.testing.far_side import JwtIssuer, WebhookFarSide
from talaria.testing.platform_suite import PlatformSuite, VisibleMessage, next_incoming
from talaria.testing.system_servers import free_port
from talaria.testing.teams_server import ISSUER, TeamsServer, read_actions, teams_server
from talaria.testing.wait import until

APP_ID, SECRET, TENANT = "00000000-1111-2222-3333-444444444444", "teams-secret-of-the-tests", "contoso.example"
ANN = "ann"
PERSONAL, TRIP, CHANNEL = "a:1personal-chat-of-ann", "19:trip@thread.v2", "19:plans@thread.tacv2"
CHATS = {PERSONAL: "personal", TRIP: "groupChat", CHANNEL: "channel"}
PUBLIC = "https://talaria.example/teams"
LINK = re.compile(rf"\[[^\]]*\]\(({re.escape(PUBLIC)}/files/[^)]*)\)")


class TeamsFarSide(WebhookFarSide):
    def __init__(self, server: TeamsServer, store: Store, folder: Path) -> None:
        super().__init__(server, server.sender)
        port = free_port()
        server.tunnel = f"http://127.0.0.1:{port}/teams"
        self.settings = TeamsSettings(
            app_id=APP_ID,
            secret=SECRET,
            tenant=TENANT,
            endpoint=EndpointSettings(public_url=PUBLIC, port=port),
            service_url=server.service_url,
            authority=server.url,
            openid_url=f"{server.url}/v1/.well-known/openidconfiguration",
            file_limit=1024 * 1024,
            patience=timedelta(seconds=5),
        )
        self.platform = Teams(self.settings, store, folder)
        self.secret = SECRET
        self.private = Address("teams", PERSONAL)
        self.group: Address | None = Address("teams", TRIP, "group")
        self.root = server.start_thread(CHANNEL)
        self.thread: Address | None = Address("teams", CHANNEL, "thread", self.root)
        self.nowhere = Address("teams", "a:1nobody")
        self.server = server

    async def says(self, at: Address, text: str, *, addressed: bool = True) -> None:
        mention = self.server.mention(text) if at.chat_type != "private" and addressed else {}
        self.server.say(_conversation(at), ANN, **{"text": text, **mention})

    async def sends_file(self, at: Address, name: str, data: bytes) -> None:
        self.server.send_file(_conversation(at), ANN, name, data)

    async def presses(self, at: Address, message_id: str, label: str) -> None:
        self.server.press(message_id, ANN, label)

    async def seen(self, at: Address) -> list[VisibleMessage]:
        return [
            VisibleMessage(
                message_id=one.id,
                text=LINK.sub("", one.activity["text"]).replace("  \n", "\n").strip(),
                buttons=tuple(action["title"] for action in read_actions(one.activity)),
                files=tuple(unquote(url.rpartition("/")[2]) for url in _links(one.activity)),
            )
            for one in self.server.sent
            if one.conversation == _conversation(at) and one.id != at.thread_id
        ]


def _conversation(at: Address) -> str:
    return f"{at.chat_id};messageid={at.thread_id}" if at.thread_id else at.chat_id


def _links(activity: dict[str, Any]) -> list[str]:
    pictures = [one["contentUrl"] for one in activity.get("attachments", []) if "contentUrl" in one]
    return [*LINK.findall(activity["text"]), *pictures]


@pytest.fixture
def store_location(sqlite_location: StoreLocation) -> StoreLocation:
    return sqlite_location


@pytest.fixture
async def far_side(store: Store, tmp_path: Path) -> AsyncIterator[TeamsFarSide]:
    async with teams_server(APP_ID, SECRET, TENANT, CHATS) as server:
        there = TeamsFarSide(server, store, tmp_path)
        server.add_bot(CHANNEL, ANN)
        async with there.platform.connect():
            await until(lambda: server.sender.accepted == 1)
        try:
            yield there
        finally:
            await there.platform.close()


class TestTeams(PlatformSuite, lacks={"reactions", "idempotent", "backlog", "deaf"}):
    pass


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": "another-app"},
        {"iss": "https://sts.windows.net/contoso"},
        {"exp": 1_600_000_000},
        {"nbf": 4_000_000_000},
        {"serviceurl": "https://evil.example/"},
        {"serviceurl": None},
    ],
)
async def test_token_with_wrong_claims_is_refused(far_side: TeamsFarSide, claims: dict[str, Any]) -> None:
    async with far_side.platform.connect() as arrivals:
        far_side.server.claims = claims
        status = await _post(far_side, far_side.server.issuer.sign(_claims(far_side)))
        assert status == 401
        far_side.server.claims = {}
        await far_side.says(far_side.private, "signed")
        assert (await next_incoming(arrivals)).text == "signed"


async def test_a_forged_token_is_refused(far_side: TeamsFarSide) -> None:
    issuer, claims = far_side.server.issuer, _claims(far_side)
    stranger = JwtIssuer()
    stranger.rotate()
    forged = (
        "",
        "not-a-token",
        issuer.sign(claims, algorithm="HS256"),
        issuer.sign(claims)[:-8] + "AAAAAAAA",
        stranger.sign(claims, key_id="key-0"),
        stranger.sign(claims),
    )
    async with far_side.platform.connect():
        assert [await _post(far_side, token) for token in forged] == [401] * len(forged)
        assert await _post(far_side, issuer.sign(claims)) == 200


async def test_senders_are_asked_to_retry_while_signing_keys_cannot_be_fetched(
    far_side: TeamsFarSide, store: Store, tmp_path: Path
) -> None:
    settings = structs.replace(far_side.settings, openid_url=f"{far_side.server.url}/nowhere")
    without_keys = Teams(settings, store, tmp_path)
    async with without_keys.connect():
        assert await _post(far_side, far_side.server.issuer.sign(_claims(far_side))) == 503
    await without_keys.close()


async def test_rotated_keys_are_fetched_again_but_not_for_every_unknown_key(
    far_side: TeamsFarSide, clock: SettableClock
) -> None:
    far_side.server.issuer = issuer = JwtIssuer()
    keys = SigningKeys(f"{far_side.server.url}/v1/.well-known/keys", timedelta(seconds=5), clock=clock)

    async def verify() -> None:
        token = f"Bearer {issuer.sign(_claims(far_side))}"
        await verify_token(token, keys, issuers=[ISSUER], audience=APP_ID)

    await verify()
    await verify()
    assert issuer.fetched == 1
    issuer.rotate()
    with pytest.raises(BadSignature):
        await verify()
    assert issuer.fetched == 1
    clock.advance(timedelta(minutes=1))
    await verify()
    clock.advance(timedelta(hours=25))
    await verify()
    assert issuer.fetched == 3
    await keys.close()


async def test_another_process_sends_to_the_stored_service_url_of_a_chat(
    far_side: TeamsFarSide, store: Store, tmp_path: Path
) -> None:
    await _receive(far_side, "hello")
    settings = structs.replace(far_side.settings, service_url="http://127.0.0.1:9/wrong")
    later = Teams(settings, store, tmp_path)
    await later.send(far_side.private, Content(text="still here"), "later")
    assert [one.text for one in await far_side.seen(far_side.private)] == ["still here"]
    await later.close()


async def test_own_mention_is_removed_and_other_mentions_are_readable(far_side: TeamsFarSide) -> None:
    fields = far_side.server.mention("ask <at>Bob</at> about <b>")
    async with far_side.platform.connect() as arrivals:
        far_side.server.say(CHANNEL, ANN, **fields)
        asked = await next_incoming(arrivals)
    assert (asked.text, asked.addressed) == ("ask @Bob about <b>", True)
    assert (asked.address.chat_type, asked.address.thread_id) == ("thread", asked.message_id)
    assert asked.server == "19:team@thread.tacv2"


async def test_edit_is_reported_as_the_same_message(far_side: TeamsFarSide) -> None:
    async with far_side.platform.connect() as arrivals:
        message_id = far_side.server.say(PERSONAL, ANN, "frist")
        far_side.server.edit(PERSONAL, ANN, message_id, "first")
        before, after = await next_incoming(arrivals), await next_incoming(arrivals)
    assert (after.text, after.edited, after.message_id) == ("first", True, before.message_id)
    assert after.external_id != before.external_id


async def test_pasted_pictures_are_downloaded_with_our_token(far_side: TeamsFarSide, tmp_path: Path) -> None:
    async with far_side.platform.connect() as arrivals:
        far_side.server.send_picture(PERSONAL, ANN, b"\x89PNG")
        (picture,) = (await next_incoming(arrivals)).attachments
    assert picture.kind == "picture"
    assert (await far_side.platform.fetch(picture, tmp_path / "inbox")).read_bytes() == b"\x89PNG"


async def test_token_is_sent_to_the_service_only(far_side: TeamsFarSide) -> None:
    elsewhere = {"contentType": "image/png", "contentUrl": "https://evil.example/v3/attachments/1", "name": "cat.png"}
    plain = {"contentType": "image/png", "contentUrl": "http://127.0.0.1:9/metadata", "name": "cat.png"}
    async with far_side.platform.connect() as arrivals:
        far_side.server.say(PERSONAL, ANN, "look", attachments=[elsewhere, plain])
        (attachment,) = (await next_incoming(arrivals)).attachments
    assert attachment.reference == "open https://evil.example/v3/attachments/1"


async def test_small_pictures_are_shown_and_other_files_are_links(far_side: TeamsFarSide, tmp_path: Path) -> None:
    picture, notes = tmp_path / "cat.png", tmp_path / "notes [old].txt"
    picture.write_bytes(b"\x89PNG")
    notes.write_bytes(b"notes")
    files = (File(str(picture), "cat.png"), File(str(notes), "notes [old].txt"))
    async with far_side.platform.connect(), ClientSession() as session:
        await far_side.platform.send(far_side.private, Content(text="Here.", files=files), "files")
        (sent,) = far_side.server.sent
        for link, data in zip(_links(sent.activity), (b"notes", b"\x89PNG"), strict=True):
            async with session.get(link.replace(PUBLIC, far_side.server.tunnel)) as found:
                assert (found.status, await found.read()) == (200, data)
    assert sent.activity["attachments"][0]["contentType"] == "image/png"


async def test_many_buttons_are_in_rows(far_side: TeamsFarSide) -> None:
    buttons = tuple(Button(f"Choice {number}", f"choose:{number}") for number in range(13))
    await far_side.platform.send(far_side.private, Content(text="Which?", buttons=buttons), "many")
    assert len((await far_side.seen(far_side.private))[0].buttons) == 13


async def test_a_message_to_a_channel_starts_a_thread_and_can_be_edited(far_side: TeamsFarSide) -> None:
    ref = await far_side.platform.send(Address("teams", CHANNEL, "channel"), Content(text="News"), "news")
    await far_side.platform.edit(ref, Content(text="More news"))
    (sent,) = far_side.server.sent
    assert (sent.conversation, sent.activity["text"]) == (f"{CHANNEL};messageid={ref.message_id}", "More news")


def test_line_ends_become_breaks_outside_code() -> None:
    text = "one\ntwo\n\nthree\n```\na\nb\n```\n- x\n- y"
    assert break_lines(text) == "one  \ntwo\n\nthree  \n```\na\nb\n```\n- x  \n- y"


async def test_setup_tests_the_secret_and_the_address(far_side: TeamsFarSide) -> None:
    _, _, secret, url, port = SETUP.questions
    assert secret.check is not None
    assert url.problem is not None
    assert port.problem is not None
    options = {"authority": far_side.server.url, "tenant": TENANT}

    async def check(app_secret: str, **more: str) -> str:
        assert secret.check is not None
        secrets = {"TEAMS_APP_ID": APP_ID, "TEAMS_APP_SECRET": app_secret}
        return (await secret.check(NetworkTrial(secrets, {**options, **more}))).outcome

    assert await check(SECRET) == "right"
    assert await check("wrong") == "refused"
    assert await check(SECRET, tenant="elsewhere.example") == "refused"
    assert (url.problem(PUBLIC), port.problem("8647")) == ("", "")
    assert "must start with https://" in url.problem("http://talaria.example")
    assert "port" in port.problem("0")
    assert SETUP.doctor is not None
    assert "public_url" in SETUP.doctor(NetworkTrial({}))[0]


@pytest.mark.parametrize("options", [{}, {"public_url": PUBLIC, "gruop_mode": "free"}, {"public_url": "nowhere"}])
def test_wrong_options_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(Refused, match=r"platforms\.teams"):
        read_settings("teams", options, APP_ID, SECRET)


def _claims(far_side: TeamsFarSide) -> dict[str, Any]:
    server = far_side.server
    return {"iss": ISSUER, "aud": APP_ID, "serviceurl": server.service_url, **server.claims}


async def _post(far_side: TeamsFarSide, token: str) -> int:
    """Post an activity without content, and return the status."""
    account, conversation = {"id": "28:bot"}, {"id": PERSONAL, "conversationType": "personal"}
    activity = {
        "type": "typing",
        "serviceUrl": far_side.server.service_url,
        "channelId": "msteams",
        "from": account,
        "recipient": account,
        "conversation": conversation,
    }
    headers = {"authorization": f"Bearer {token}"}
    async with (
        ClientSession() as session,
        session.post(far_side.server.tunnel, json=activity, headers=headers) as found,
    ):
        return found.status


async def _receive(far_side: TeamsFarSide, text: str) -> None:
    async with far_side.platform.connect() as arrivals:
        await far_side.says(far_side.private, text)
        assert (await next_incoming(arrivals)).text == text
