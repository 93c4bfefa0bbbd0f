"""The contract suite on LINE, and what only LINE has: signatures, mentions, links to files, stickers and locations."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from urllib.parse import unquote

import pytest
from aiohttp import ClientSession
from msgspec import structs

from talaria.contracts.platform import Content
from talaria.contracts.setup import NetworkTrial
from talaria.core.addresses import Address
from talaria.core.errors import Refused
from talaria.core.messages import File
from talaria.platforms.line.adapter import Line
from talaria.platforms.line.settings import LineSettings, read_settings
from talaria.platforms.line.setup import SETUP
from talaria.platforms.webhook_endpoint import EndpointSettings
from talaria.testing.far_side import WebhookFarSide
from talaria.testing.line_server import LineServer, line_server
from talaria.testing.platform_suite import PlatformSuite, VisibleMessage, next_incoming
from talaria.testing.system_servers import free_port

TOKEN, SECRET = "line-token-of-the-tests", "0123456789abcdef0123456789abcdef"
ANN, FAMILY = "U0000000000000000000000000000000a", "C0000000000000000000000000000000f"
PUBLIC = "https://talaria.example/line"
AT_START = {"index": 0, "length": 7, "type": "user", "isSelf": True}  # a mention of the account


class LineFarSide(WebhookFarSide):
    def __init__(self, server: LineServer, folder: Path) -> None:
        super().__init__(server, server.sender)
        self.port = free_port()
        server.tunnel = f"http://127.0.0.1:{self.port}/line"
        self.settings = LineSettings(
            token=TOKEN,
            secret=SECRET,
            endpoint=EndpointSettings(public_url=PUBLIC, port=self.port),
            api_url=server.url,
            data_url=server.url,
            file_limit=1024 * 1024,
            patience=timedelta(seconds=5),
        )
        self.platform = Line(self.settings, folder)
        self.secret = TOKEN
        self.private = Address("line", ANN)
        self.group: Address | None = Address("line", FAMILY, "group")
        self.thread: Address | None = None
        self.nowhere = Address("line", "U0000000000000000000000000000000x")
        self.server = server

    async def says(self, at: Address, text: str, *, addressed: bool = True) -> None:
        mention = {"text": f"@Winged {text}", "mention": {"mentionees": [AT_START]}}
        is_mention = at.chat_type == "group" and addressed
        self.server.say(at.chat_id, ANN, {"type": "text", "text": text} | (mention if is_mention else {}))

    async def sends_file(self, at: Address, name: str, data: bytes) -> None:
        self.server.send_file(at.chat_id, ANN, name, data)

    async def presses(self, at: Address, message_id: str, label: str) -> None:
        items = [item["action"] for one in self.server.sent for item in one.get("quickReply", {}).get("items", [])]
        data = next(one["data"] for one in items if one["label"] == label and one["data"].startswith(message_id))
        self.server.press(at.chat_id, ANN, data)

    async def seen(self, at: Address) -> list[VisibleMessage]:
        return [
            VisibleMessage(
                message_id=one["id"],
                text=one.get("text", ""),
                reply_to=one["quoted"],
                buttons=tuple(item["action"]["label"] for item in one.get("quickReply", {}).get("items", [])),
                files=tuple(unquote(line.rpartition("/")[2]) for line in _links(one)),
            )
            for one in self.server.sent
            if one["to"] == at.chat_id
        ]


def _links(message: dict[str, str]) -> list[str]:
    lines = [*message.get("text", "").splitlines(), message.get("originalContentUrl", "")]
    return [line for line in lines if line.startswith(f"{PUBLIC}/files/")]


@pytest.fixture
async def far_side(tmp_path: Path) -> AsyncIterator[LineFarSide]:
    async with line_server(TOKEN, SECRET, {ANN: "Ann"}, frozenset({FAMILY})) as server:
        there = LineFarSide(server, tmp_path)
        try:
            yield there
        finally:
            await there.platform.close()


class TestLine(PlatformSuite, lacks={"servers", "threads", "edits", "reactions", "deaf"}):
    pass


@pytest.mark.parametrize("signature", ["", "bm90IHRoZSBzaWduYXR1cmU="])
async def test_a_post_without_the_right_signature_is_refused(far_side: LineFarSide, signature: str) -> None:
    async with far_side.platform.connect() as arrivals, ClientSession() as session:
        headers = {"x-line-signature": signature}
        async with session.post(far_side.server.tunnel, data=b'{"events":[]}', headers=headers) as refused:
            assert refused.status == 401
        await far_side.says(far_side.private, "signed")
        assert (await next_incoming(arrivals)).text == "signed"


async def test_stickers_and_locations_are_described(far_side: LineFarSide) -> None:
    async with far_side.platform.connect() as arrivals:
        far_side.server.say(ANN, ANN, {"type": "sticker", "keywords": ["hello", "wave"]})
        location = {"type": "location", "title": "Home", "address": "Attic", "latitude": 1.5, "longitude": 2.5}
        far_side.server.say(ANN, ANN, location)
        texts = [(await next_incoming(arrivals)).text for _ in range(2)]
    assert texts == ["(sticker: hello, wave)", "Home\nAttic\n1.5, 2.5"]


async def test_file_is_served_at_an_unguessable_url(far_side: LineFarSide, tmp_path: Path) -> None:
    picture = tmp_path / "cat.png"
    picture.write_bytes(b"\x89PNG")
    async with far_side.platform.connect(), ClientSession() as session:
        await far_side.platform.send(far_side.private, Content(files=(File(str(picture), "cat.png"),)), "cat")
        link = far_side.server.sent[0]["originalContentUrl"].replace(PUBLIC, far_side.server.tunnel)
        async with session.get(link) as found:
            assert (found.status, await found.read(), found.content_type) == (200, b"\x89PNG", "image/png")
        for wrong in (f"{link}x", f"{far_side.server.tunnel}/files/../cat.png", far_side.server.tunnel):
            async with session.get(wrong) as refused:
                assert refused.status in {403, 404}


async def test_a_picture_too_large_for_a_preview_is_a_link(far_side: LineFarSide, tmp_path: Path) -> None:
    picture = tmp_path / "large.png"
    picture.write_bytes(bytes(1024 * 1024 + 1))
    platform = Line(structs.replace(far_side.settings, file_limit=2 * 1024 * 1024), tmp_path)
    await platform.send(far_side.private, Content(files=(File(str(picture), "large.png"),)), "large")
    assert [one["type"] for one in far_side.server.sent] == ["text"]
    await platform.close()


async def test_command_after_a_leading_mention_is_recognised(far_side: LineFarSide) -> None:
    mentionee = {"index": 3, "length": 7, "type": "user", "isSelf": True}
    message = {"type": "text", "text": "👩 @Winged /help", "mention": {"mentionees": [mentionee]}}
    async with far_side.platform.connect() as arrivals:
        far_side.server.say(FAMILY, ANN, message)
        far_side.server.say(FAMILY, ANN, {**message, "text": "@Winged /help", "mention": {"mentionees": [AT_START]}})
        texts = [(await next_incoming(arrivals)).text for _ in range(2)]
    assert texts == ["👩  /help", "/help"]


async def test_typing_is_shown_in_private_chats_only(far_side: LineFarSide) -> None:
    assert far_side.group is not None
    await far_side.platform.show_typing(far_side.group)
    await far_side.platform.show_typing(far_side.private)
    assert far_side.server.loading == [ANN]


async def test_setup_tests_the_token_and_the_address(far_side: LineFarSide) -> None:
    token, _, url, port = SETUP.questions
    assert token.check is not None
    assert url.problem is not None
    assert port.problem is not None
    options = {"api_url": far_side.server.url, "public_url": PUBLIC}
    right = await token.check(NetworkTrial({"LINE_CHANNEL_TOKEN": TOKEN}, options))
    wrong = await token.check(NetworkTrial({"LINE_CHANNEL_TOKEN": "wrong"}, options))
    assert right.sentence == "LINE accepted the token: Winged (@123abcde)."
    assert wrong.outcome == "refused"
    assert (url.problem(PUBLIC), port.problem("8646")) == ("", "")
    assert "must start with https://" in url.problem("http://talaria.example")
    assert "port" in port.problem("0")
    assert SETUP.doctor is not None
    assert "public_url" in SETUP.doctor(NetworkTrial({}))[0]


@pytest.mark.parametrize("options", [{}, {"public_url": PUBLIC, "gruop_mode": "free"}, {"public_url": "nowhere"}])
def test_wrong_options_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(Refused, match=r"platforms\.line"):
        read_settings("line", options, TOKEN, SECRET)
