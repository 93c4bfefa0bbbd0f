"""The contract suite on Feishu, and what only it has: encryption, signatures, the challenge, rich texts, domains."""

import time
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import ClientSession
from msgspec import structs

from talaria.contracts.platform import Content
from talaria.contracts.setup import NetworkTrial
from talaria.core.addresses import Address
from talaria.core.errors import Refused
from talaria.core.messages import File
from talaria.platforms.feishu.adapter import Feishu
from talaria.platforms.feishu.settings import FeishuSettings, read_settings
from talaria.platforms.feishu.setup import SETUP
from talaria.platforms.feishu.wire import decrypt_body
from talaria.platforms.webhook_endpoint import EndpointSettings
from talaria.testing.far_side import WebhookFarSide
from talaria.testing.feishu_server import BOT, FeishuKeys, FeishuServer, feishu_server, read_buttons, read_text
from talaria.testing.platform_suite import PlatformSuite, VisibleMessage, next_incoming
from talaria.testing.system_servers import free_port

KEYS = FeishuKeys("cli_a1b2c3", "feishu-secret-of-the-tests", "test key", "verification-token")
ANN, PRIVATE, GROUP = "ou_ann", "oc_private", "oc_group"
CHATS = {PRIVATE: "p2p", GROUP: "group"}
PUBLIC = "https://talaria.example/feishu"


class FeishuFarSide(WebhookFarSide):
    def __init__(self, server: FeishuServer) -> None:
        super().__init__(server, server.sender)
        port = free_port()
        server.tunnel = f"http://127.0.0.1:{port}/feishu"
        self.settings = FeishuSettings(
            **structs.asdict(KEYS),
            endpoint=EndpointSettings(public_url=PUBLIC, port=port),
            api_url=server.url,
            file_limit=1024 * 1024,
            patience=timedelta(seconds=5),
        )
        self.platform = Feishu(self.settings)
        self.secret = KEYS.secret
        self.private = Address("feishu", PRIVATE)
        self.group: Address | None = Address("feishu", GROUP, "group")
        self.thread: Address | None = Address("feishu", GROUP, "thread", server.start_thread(GROUP))
        self.nowhere = Address("feishu", "oc_nowhere")
        self.server = server

    async def says(self, at: Address, text: str, *, addressed: bool = True) -> None:
        content: dict[str, Any] = {"text": text}
        fields: dict[str, Any] = {}
        if at.chat_type != "private" and addressed:
            content, fields = self.server.mention(text)
        thread = {"root_id": at.thread_id} if at.thread_id else {}
        self.server.say(at.chat_id, ANN, "text", content, **fields, **thread)

    async def sends_file(self, at: Address, name: str, data: bytes) -> None:
        self.server.send_file(at.chat_id, ANN, name, data)

    async def presses(self, at: Address, message_id: str, label: str) -> None:
        self.server.press(message_id, ANN, label)

    async def seen(self, at: Address) -> list[VisibleMessage]:
        return [
            VisibleMessage(
                message_id=one["message_id"],
                text=read_text(one),
                buttons=tuple(button["text"]["content"] for button in read_buttons(one)),
                files=tuple(self.server.uploads[key] for key in _upload_keys(one)),
            )
            for one in self.server.sent
            if (one["chat_id"], one["root_id"]) == (at.chat_id, at.thread_id)
        ]


def _upload_keys(message: dict[str, Any]) -> list[str]:
    content = msgspec.json.decode(message["content"])
    return [content[name] for name in ("image_key", "file_key") if name in content]


@pytest.fixture
async def far_side() -> AsyncIterator[FeishuFarSide]:
    async with feishu_server(KEYS, {ANN: "Ann"}, CHATS) as server:
        there = FeishuFarSide(server)
        try:
            yield there
        finally:
            await there.platform.close()


class TestFeishu(PlatformSuite, lacks={"typing", "reactions", "deaf"}):
    pass


def test_the_example_of_the_documentation_is_decrypted() -> None:
    body = msgspec.json.encode({"encrypt": "P37w+VZImNgPEO1RBhJ6RtKl7n6zymIbEG1pReEzghk="})
    assert decrypt_body(body, "test key") == b"hello world"


async def test_url_verification_challenge_is_answered(far_side: FeishuFarSide) -> None:
    challenge = {"type": "url_verification", "challenge": "ajls384kdjx98XX", "token": KEYS.token}
    async with far_side.platform.connect(), ClientSession() as session:
        async with session.post(far_side.server.tunnel, data=far_side.server.encrypt(challenge)) as answered:
            assert (answered.status, await answered.json()) == (200, {"challenge": "ajls384kdjx98XX"})
        forged = far_side.server.encrypt({**challenge, "token": "another"})
        async with session.post(far_side.server.tunnel, data=forged) as refused:
            assert refused.status == 401


async def test_posts_with_invalid_signature_token_or_body_are_refused(far_side: FeishuFarSide) -> None:
    server = far_side.server
    header = {"event_id": "1", "event_type": "other", "token": KEYS.token}
    body, foreign = server.encrypt({"header": header}), server.encrypt({"header": {**header, "token": "another"}})
    async with far_side.platform.connect():
        assert await _post(far_side, body, server.sign(body)) == 200
        assert await _post(far_side, body, {}) == 401
        assert await _post(far_side, body, {**server.sign(body), "x-lark-signature": "0" * 64}) == 401
        assert await _post(far_side, body, server.sign(body, at=time.time() - 3600)) == 401
        assert await _post(far_side, foreign, server.sign(foreign)) == 401
        for broken in (b"{}", b'{"encrypt":"AAAA"}', b'{"encrypt":"' + b"A" * 64 + b'"}'):
            assert await _post(far_side, broken, server.sign(broken)) == 400


async def test_rich_texts_and_mentions_are_read(far_side: FeishuFarSide) -> None:
    line = [{"tag": "text", "text": "ask "}, {"tag": "at", "user_id": "@_user_2"}, {"tag": "img", "image_key": "img_1"}]
    mentions = [
        {"key": "@_user_1", "id": {"open_id": BOT}, "name": "Winged"},
        {"key": "@_user_2", "id": {"open_id": "ou_bob"}, "name": "Bob"},
    ]
    content = {"title": "Plans", "content": [[{"tag": "at", "user_id": "@_user_1"}], line]}
    async with far_side.platform.connect() as arrivals:
        far_side.server.say(GROUP, ANN, "post", content, mentions=mentions)
        asked = await next_incoming(arrivals)
    assert (asked.text, asked.addressed, asked.sender.name) == ("Plans\n\nask @Bob", True, "Ann")
    assert [one.kind for one in asked.attachments] == ["picture"]


async def test_refused_access_token_is_renewed(far_side: FeishuFarSide) -> None:
    await far_side.platform.send(far_side.private, Content(text="one"), "one")
    far_side.server.forget_tokens()
    await far_side.platform.send(far_side.private, Content(text="two"), "two")
    assert [one.text for one in await far_side.seen(far_side.private)] == ["one", "two"]


async def test_pictures_and_files_are_uploaded(far_side: FeishuFarSide, tmp_path: Path) -> None:
    picture, notes = tmp_path / "cat.png", tmp_path / "notes.txt"
    picture.write_bytes(b"\x89PNG")
    notes.write_bytes(b"notes")
    files = (File(str(picture), "cat.png"), File(str(notes), "notes.txt"))
    for _ in range(2):  # repeated with the same key
        await far_side.platform.send(far_side.private, Content(text="Here.", files=files), "files")
    assert [one["msg_type"] for one in far_side.server.sent] == ["interactive", "image", "file"]


async def test_setup_tests_the_secret_and_the_address(far_side: FeishuFarSide) -> None:
    domain, _, secret, _, _, url, port = SETUP.questions
    assert secret.check is not None
    assert domain.problem is not None
    assert url.problem is not None
    assert port.problem is not None

    async def check(app_secret: str) -> str:
        assert secret.check is not None
        secrets = {"FEISHU_APP_ID": KEYS.app_id, "FEISHU_APP_SECRET": app_secret}
        return (await secret.check(NetworkTrial(secrets, {"api_url": far_side.server.url}))).outcome

    assert (await check(KEYS.secret), await check("wrong")) == ("right", "refused")
    assert (domain.problem("lark"), url.problem(PUBLIC), port.problem("8649")) == ("", "", "")
    assert domain.problem("dingtalk") == "The domain is feishu or lark."
    assert "must start with https://" in url.problem("http://talaria.example")
    assert SETUP.doctor is not None
    assert "public_url" in SETUP.doctor(NetworkTrial({}))[0]


def test_both_domains_have_an_api_url() -> None:
    secrets = structs.asdict(KEYS)
    urls = [read_settings("feishu", {"public_url": PUBLIC, "domain": one}, secrets).api for one in ("feishu", "lark")]
    assert urls == ["https://open.feishu.cn", "https://open.larksuite.com"]


@pytest.mark.parametrize("options", [{}, {"public_url": PUBLIC, "gruop_mode": "free"}, {"public_url": "nowhere"}])
def test_wrong_options_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(Refused, match=r"platforms\.feishu"):
        read_settings("feishu", options, structs.asdict(KEYS))


async def _post(far_side: FeishuFarSide, body: bytes, headers: dict[str, str]) -> int:
    async with ClientSession() as session, session.post(far_side.server.tunnel, data=body, headers=headers) as found:
        return found.status
