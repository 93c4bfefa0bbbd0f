"""The contract suite on Google Chat, and what only it has: tokens of two kinds, commands, cards, its own markup."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from aiohttp import ClientSession
from msgspec import structs

from talaria.contracts.platform import Content
from talaria.contracts.setup import NetworkTrial
from talaria.core.addresses import Address
from talaria.core.errors import BadCredentials, Refused
from talaria.core.messages import File
from talaria.platforms.googlechat.adapter import GoogleChat
from talaria.platforms.googlechat.settings import GoogleChatSettings, read_settings
from talaria.platforms.googlechat.setup import SETUP
from talaria.platforms.webhook_endpoint import EndpointSettings
from talaria.testing.far_side import WebhookFarSide
from talaria.testing.googlechat_server import CHAT_ACCOUNT, GoogleChatServer, googlechat_server, read_buttons
from talaria.testing.platform_suite import PlatformSuite, VisibleMessage, next_incoming
from talaria.testing.system_servers import free_port

PROJECT, ANN = "123456789012", "ann"
DIRECT, FRIENDS, SPACE = "AAAAdirect", "AAAAfriends", "AAAAspace"
SPACES = {DIRECT: "DIRECT_MESSAGE", FRIENDS: "GROUP_CHAT", SPACE: "SPACE"}
PUBLIC = "https://talaria.example/googlechat"


class GoogleChatFarSide(WebhookFarSide):
    def __init__(self, server: GoogleChatServer, folder: Path) -> None:
        super().__init__(server, server.sender)
        port = free_port()
        server.tunnel = f"http://127.0.0.1:{port}/googlechat"
        self.key_file = folder / "key.json"
        server.write_key_file(self.key_file)
        self.settings = GoogleChatSettings(
            credentials=self.key_file,
            endpoint=EndpointSettings(public_url=PUBLIC, port=port),
            project_number=PROJECT,
            api_url=server.url,
            keys_url=f"{server.url}/keys",
            file_limit=1024 * 1024,
            patience=timedelta(seconds=5),
        )
        self.platform = GoogleChat(self.settings, folder)
        self.secret = self.key_file.read_text()
        self.private = Address("googlechat", DIRECT)
        self.group: Address | None = Address("googlechat", FRIENDS, "group")
        self.thread: Address | None = Address("googlechat", SPACE, "thread", server.start_thread(SPACE))
        self.nowhere = Address("googlechat", "AAAAnowhere")
        self.server = server

    async def says(self, at: Address, text: str, *, addressed: bool = True) -> None:
        mention = self.server.mention(text) if at.chat_type != "private" and addressed else {}
        self.server.say(at.chat_id, ANN, **{"text": text, **mention}, thread=at.thread_id)

    async def sends_file(self, at: Address, name: str, data: bytes) -> None:
        self.server.send_file(at.chat_id, ANN, name, data)

    async def presses(self, at: Address, message_id: str, label: str) -> None:
        self.server.press(message_id, ANN, label)

    async def seen(self, at: Address) -> list[VisibleMessage]:
        thread = f"spaces/{at.chat_id}/threads/{at.thread_id}"
        found = [one for one in self.server.sent if one["space"]["name"] == f"spaces/{at.chat_id}"]
        return [
            VisibleMessage(
                message_id=one["name"].rpartition("/")[2],
                text="\n".join(line for line in one["text"].splitlines() if f"{PUBLIC}/files/" not in line),
                buttons=tuple(button["text"] for button in read_buttons(one)),
                files=tuple(unquote(link.rpartition("/")[2]) for link in _links(one)),
            )
            for one in found
            if not at.thread_id or (one["thread"]["name"] == thread and "cardsV2" in one)
        ]


def _links(message: dict[str, Any]) -> list[str]:
    widgets = [
        one for card in message.get("cardsV2", []) for part in card["card"]["sections"] for one in part["widgets"]
    ]
    urls = [*message["text"].split(), *(one["image"]["imageUrl"] for one in widgets if "image" in one)]
    return [url for url in urls if url.startswith(f"{PUBLIC}/files/")]


@pytest.fixture
async def far_side(tmp_path: Path) -> AsyncIterator[GoogleChatFarSide]:
    async with googlechat_server(PROJECT, SPACES) as server:
        there = GoogleChatFarSide(server, tmp_path)
        try:
            yield there
        finally:
            await there.platform.close()


class TestGoogleChat(PlatformSuite, lacks={"servers", "typing", "reactions", "backlog", "deaf"}):
    pass


@pytest.mark.parametrize("claims", [{"aud": "1"}, {"iss": "https://accounts.google.com"}, {"exp": 1_600_000_000}])
async def test_token_with_wrong_claims_is_refused(far_side: GoogleChatFarSide, claims: dict[str, Any]) -> None:
    server = far_side.server
    async with far_side.platform.connect():
        assert await _post(far_side, server.issuer.sign({**server.claims, **claims})) == 401
        assert await _post(far_side, server.issuer.sign(server.claims)) == 200
        assert await _post(far_side, "") == 401


async def test_without_a_project_number_the_token_audience_is_the_public_url(
    far_side: GoogleChatFarSide, tmp_path: Path
) -> None:
    platform = GoogleChat(structs.replace(far_side.settings, project_number=""), tmp_path)
    claims = {"iss": "https://accounts.google.com", "aud": PUBLIC, "email": CHAT_ACCOUNT, "email_verified": True}
    sign = far_side.server.issuer.sign
    async with platform.connect():
        assert await _post(far_side, sign(claims)) == 200
        assert await _post(far_side, sign({**claims, "email": "stranger@example.org"})) == 401
        assert await _post(far_side, sign(far_side.server.claims)) == 401
    await platform.close()


async def test_registered_command_is_received_as_a_slash_command(far_side: GoogleChatFarSide) -> None:
    async with far_side.platform.connect() as arrivals:
        far_side.server.command(SPACE, ANN, "model", "fast")
        asked = await next_incoming(arrivals)
    assert (asked.text, asked.addressed) == ("/model fast", True)


async def test_a_message_of_a_space_is_answered_in_its_thread(far_side: GoogleChatFarSide) -> None:
    async with far_side.platform.connect() as arrivals:
        far_side.server.say(SPACE, ANN, **far_side.server.mention("news?"))
        asked = await next_incoming(arrivals)
    await far_side.platform.send(asked.address, Content(text="None."), "answer")
    (sent,) = far_side.server.sent
    assert sent["thread"]["name"] == f"spaces/{SPACE}/threads/{asked.address.thread_id}"
    assert (asked.text, asked.address.chat_type) == ("news?", "thread")


async def test_pictures_are_shown_and_other_files_are_links(far_side: GoogleChatFarSide, tmp_path: Path) -> None:
    picture, notes = tmp_path / "cat.png", tmp_path / "notes.txt"
    picture.write_bytes(b"\x89PNG")
    notes.write_bytes(b"notes")
    files = (File(str(picture), "cat.png"), File(str(notes), "notes.txt"))
    async with far_side.platform.connect(), ClientSession() as session:
        await far_side.platform.send(far_side.private, Content(files=files), "files")
        (sent,) = far_side.server.sent
        for link, data in zip(_links(sent), (b"notes", b"\x89PNG"), strict=True):
            async with session.get(link.replace(PUBLIC, far_side.server.tunnel)) as found:
                assert (found.status, await found.read()) == (200, data)


async def test_a_missing_key_file_is_reported(far_side: GoogleChatFarSide) -> None:
    far_side.key_file.unlink()
    with pytest.raises(BadCredentials, match=r"key\.json can't be read"):
        await far_side.platform.send(far_side.private, Content(text="hello"), "hello")


async def test_setup_tests_the_key_file_and_the_address(far_side: GoogleChatFarSide, tmp_path: Path) -> None:
    credentials, _, url, port = SETUP.questions
    assert credentials.check is not None
    assert credentials.problem is not None
    assert url.problem is not None
    assert port.problem is not None

    async def check(file: Path) -> str:
        assert credentials.check is not None
        return (await credentials.check(NetworkTrial({"GOOGLE_CHAT_CREDENTIALS": str(file)}))).outcome

    assert await check(far_side.key_file) == "right"
    wrong = tmp_path / "wrong key.json"
    wrong.write_text("{}")
    assert await check(wrong) == "refused"
    far_side.server.failure = "revoked"
    assert await check(far_side.key_file) == "refused"
    assert (credentials.problem(str(wrong)), url.problem(PUBLIC), port.problem("8648")) == ("", "", "")
    assert credentials.problem(str(tmp_path / "none")).startswith("There is no file")
    assert "must start with https://" in url.problem("http://talaria.example")
    assert "port" in port.problem("0")
    assert SETUP.doctor is not None
    assert "public_url" in SETUP.doctor(NetworkTrial({}))[0]


@pytest.mark.parametrize("options", [{}, {"public_url": PUBLIC, "audiense": "1"}, {"public_url": "nowhere"}])
def test_wrong_options_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(Refused, match=r"platforms\.googlechat"):
        read_settings("googlechat", options, "key.json")


async def _post(far_side: GoogleChatFarSide, token: str) -> int:
    """Post an event without content, and return the status."""
    event = {"type": "REMOVED_FROM_SPACE", "eventTime": "2026-01-02T12:00:00Z"}
    headers = {"authorization": f"Bearer {token}"}
    async with ClientSession() as session, session.post(far_side.server.tunnel, json=event, headers=headers) as found:
        return found.status
