"""The contract suite on WhatsApp, and what only WhatsApp has: windows and templates, lists, reports, several ids."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from talaria.contracts.platform import Button, Content
from talaria.contracts.setup import NetworkTrial
from talaria.contracts.store import Store
from talaria.core.addresses import Address
from talaria.core.errors import BadCredentials, PlatformError, Refused, Rejected, SlowDown, Unreachable
from talaria.core.messages import File
from talaria.platforms.webhook_endpoint import EndpointSettings
from talaria.platforms.whatsapp.adapter import WHATSAPP_CHAT, LastReceived, WhatsApp
from talaria.platforms.whatsapp.settings import WhatsAppSecrets, WhatsAppSettings, read_settings
from talaria.platforms.whatsapp.setup import SETUP
from talaria.testing.far_side import WebhookFarSide
from talaria.testing.platform_suite import PlatformSuite, VisibleMessage, next_incoming
from talaria.testing.system_servers import free_port
from talaria.testing.wait import until
from talaria.testing.whatsapp_server import NUMBER_ID, WhatsAppServer, whatsapp_server

pytestmark = pytest.mark.one_engine
TOKEN, SECRET, VERIFY_TOKEN = "EAA-token-of-the-tests", "0123456789abcdef0123456789abcdef", "verify me"
ANN, ANN_ID = "16505551234", "US.13491208655302741918"
NOBODY = "16505559999"
PUBLIC = "https://talaria.example/whatsapp"


class WhatsAppFarSide(WebhookFarSide):
    def __init__(self, server: WhatsAppServer, store: Store, folder: Path) -> None:
        super().__init__(server, server.webhooks)
        self.port = free_port()
        server.tunnel = f"http://127.0.0.1:{self.port}/whatsapp"
        self.settings = WhatsAppSettings(
            secrets=WhatsAppSecrets(TOKEN, SECRET, VERIFY_TOKEN),
            endpoint=EndpointSettings(public_url=PUBLIC, port=self.port),
            phone_number_id=NUMBER_ID,
            api_url=server.url,
            template="news",
            file_limit=1024 * 1024,
            patience=timedelta(seconds=5),
        )
        self.folder = folder
        self.store = store
        self.platform = WhatsApp(self.settings, store, folder)
        self.secret = TOKEN
        self.private = Address("whatsapp", ANN)
        self.group: Address | None = None
        self.thread: Address | None = None
        self.nowhere = Address("whatsapp", NOBODY)
        self.server = server

    async def record_last_message(self, *people: str, ago: timedelta = timedelta(seconds=5)) -> None:
        """Record that these people wrote some time ago."""
        last = LastReceived(datetime.now(UTC) - ago, "wamid.earlier")
        self.server.known.add(last.message_id)
        for person in people:
            self.server.last_heard[person] = last.at.timestamp()
            await self.store.write(lambda tx, one=person: WHATSAPP_CHAT.write(tx, f"whatsapp:{one}", last))  # type: ignore[misc]

    async def says(self, at: Address, text: str, *, addressed: bool = True) -> None:
        self.server.write(at.chat_id, text)

    async def sends_file(self, at: Address, name: str, data: bytes) -> None:
        self.server.send_media(at.chat_id, "document", data, filename=name, mime_type="text/plain")

    async def presses(self, at: Address, message_id: str, label: str) -> None:
        sent = next(one for one in self.server.sent if one["id"] == message_id)
        reply = next(one for one in _options(sent) if one["title"] == label)
        kind = "list_reply" if sent["interactive"]["type"] == "list" else "button_reply"
        pressed = {"type": kind, kind: reply}
        self.server.say(at.chat_id, {"type": "interactive", "interactive": pressed, "context": {"id": message_id}})

    async def reacts(self, at: Address, message_id: str, emoji: str) -> None:
        self.server.say(at.chat_id, {"type": "reaction", "reaction": {"message_id": message_id, "emoji": emoji}})

    async def own_reactions(self, at: Address, message_id: str) -> list[str]:
        return [one for one in [self.server.reactions.get(message_id, "")] if one]

    async def seen(self, at: Address) -> list[VisibleMessage]:
        return [
            VisibleMessage(
                message_id=one["id"],
                text=_text(one),
                reply_to=one.get("context", {}).get("message_id", ""),
                buttons=tuple(option["title"] for option in _options(one)),
                files=tuple(filter(None, [one.get(one["type"], {}).get("filename", "")])),
            )
            for one in self.server.sent
            if one["phone"] == at.chat_id
        ]


def _text(message: dict[str, Any]) -> str:
    content = message[message["type"]]
    return str(
        content["body"]["text"] if message["type"] == "interactive" else content.get("body", content.get("caption", ""))
    )


def _options(message: dict[str, Any]) -> list[dict[str, str]]:
    if message["type"] != "interactive":
        return []
    action = message["interactive"]["action"]
    rows = [row for section in action.get("sections", []) for row in section["rows"]]
    return rows or [one["reply"] for one in action["buttons"]]


def parameters(server: WhatsAppServer) -> list[str]:
    return [one["template"]["components"][0]["parameters"][0]["text"] for one in server.sent]


@pytest.fixture
async def far_side(store: Store, tmp_path: Path) -> AsyncIterator[WhatsAppFarSide]:
    async with whatsapp_server(TOKEN, SECRET, {ANN: ("Ann", ANN_ID)}) as server:
        server.templates.add(("news", "en_US"))
        there = WhatsAppFarSide(server, store, tmp_path)
        await there.record_last_message(ANN, NOBODY)
        try:
            yield there
        finally:
            await there.platform.close()


class TestWhatsApp(PlatformSuite, lacks={"servers", "groups", "threads", "edits", "idempotent", "deaf"}):
    pass


@pytest.mark.parametrize("signature", ["", "sha256=" + "0" * 64])
async def test_a_post_without_the_right_signature_is_refused(far_side: WhatsAppFarSide, signature: str) -> None:
    async with far_side.platform.connect() as arrivals, ClientSession() as session:
        headers = {"x-hub-signature-256": signature}
        async with session.post(far_side.server.tunnel, data=b'{"entry":[]}', headers=headers) as refused:
            assert refused.status == 401
        await far_side.says(far_side.private, "signed")
        assert (await next_incoming(arrivals)).text == "signed"


async def test_challenge_is_answered_for_the_right_verify_token(far_side: WhatsAppFarSide) -> None:
    query = {"hub.mode": "subscribe", "hub.verify_token": VERIFY_TOKEN, "hub.challenge": "1158201444"}
    async with far_side.platform.connect(), ClientSession() as session:
        async with session.get(far_side.server.tunnel, params=query) as answer:
            assert (answer.status, await answer.text()) == (200, "1158201444")
        for wrong in ({"hub.verify_token": "guess"}, {"hub.mode": "other"}):
            async with session.get(far_side.server.tunnel, params=query | wrong) as refused:
                assert refused.status == 403


async def test_messages_of_one_post_arrive_in_order_with_all_ids_of_the_person(far_side: WhatsAppFarSide) -> None:
    async with far_side.platform.connect() as arrivals:
        ids = far_side.server.say(ANN, *({"type": "text", "text": {"body": f"{one}"}} for one in range(3)))
        arrived = [await next_incoming(arrivals) for _ in range(3)]
        far_side.server.hidden.add(ANN)
        far_side.server.write(ANN, "hidden")
        hidden = await next_incoming(arrivals)
        await far_side.platform.send(hidden.address, Content(text="I see you."), "hidden")
    assert [(one.external_id, one.text) for one in arrived] == [(id_, f"{n}") for n, id_ in enumerate(ids)]
    assert (arrived[0].sender.id, arrived[0].sender.aliases) == (ANN, (ANN_ID,))
    assert (hidden.sender.id, hidden.sender.aliases, hidden.address.chat_id) == (ANN_ID, (), ANN_ID)
    assert [one["recipient"] for one in far_side.server.sent] == [ANN_ID]


async def test_a_changed_number_moves_the_chat(far_side: WhatsAppFarSide) -> None:
    system = {"type": "user_changed_number", "wa_id": "16505550000", "body": "Ann changed her number"}
    async with far_side.platform.connect() as arrivals:
        far_side.server.say(ANN, {"type": "system", "system": system})
        moved = await next_incoming(arrivals)
    assert (moved.formerly, moved.address.chat_id) == (ANN, "16505550000")


async def test_message_after_the_service_window_is_sent_as_a_template(
    far_side: WhatsAppFarSide, tmp_path: Path
) -> None:
    await far_side.record_last_message(ANN, ago=timedelta(hours=25))
    picture = tmp_path / "cat.png"
    picture.write_bytes(b"\x89PNG")
    content = Content(text="Line one.\n\n\tLine **two**.", files=(File(str(picture), "cat.png"),))
    await far_side.platform.send(far_side.private, content, "late")
    await far_side.platform.send(far_side.private, Content(text="word " * 500, buttons=(Button("Yes", "1"),)), "long")
    first, *pieces = parameters(far_side.server)
    assert first.startswith(f"Line one. Line *two*. {PUBLIC}/files/")
    assert len(pieces) == 3
    assert " ".join(pieces) == "word " * 500 + "(Yes)"


async def test_without_a_template_a_late_message_fails_until_the_person_writes(far_side: WhatsAppFarSide) -> None:
    await far_side.record_last_message(ANN, ago=timedelta(hours=25))
    settings = read_settings(
        "whatsapp",
        {
            "public_url": PUBLIC,
            "port": str(far_side.port),
            "api_url": far_side.server.url,
            "phone_number_id": NUMBER_ID,
        },
        far_side.settings.secrets,
    )
    platform = WhatsApp(settings, far_side.store, far_side.folder)
    with pytest.raises(Unreachable, match="set the option template"):
        await platform.send(far_side.private, Content(text="News!"), "late")
    async with platform.connect() as arrivals:
        await far_side.says(far_side.private, "I'm back.")
        await next_incoming(arrivals)
        await platform.send(far_side.private, Content(text="News!"), "late")
    await platform.close()
    assert [one.text for one in await far_side.seen(far_side.private)] == ["News!"]


async def test_message_refused_for_a_closed_window_is_sent_as_a_template(far_side: WhatsAppFarSide) -> None:
    far_side.server.last_heard[ANN] = 0
    await far_side.platform.send(far_side.private, Content(text="refused at once"), "one")
    await far_side.record_last_message(ANN)
    ref = await far_side.platform.send(far_side.private, Content(text="refused later"), "two")
    far_side.server.sent.pop()
    async with far_side.platform.connect():
        far_side.server.report(ref.message_id, ANN, "sent")
        far_side.server.report(ref.message_id, ANN, "failed", 131047)
        await until(lambda: len(far_side.server.sent) == 2)
    assert parameters(far_side.server) == ["refused at once", "refused later"]


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (400, 130429, SlowDown),
        (400, 131056, SlowDown),
        (400, 80007, SlowDown),
        (400, 131048, SlowDown),
        (401, 190, BadCredentials),
        (403, 10, BadCredentials),
        (403, 200, BadCredentials),
        (403, 131031, BadCredentials),
        (400, 131000, Unreachable),
        (500, 131016, Unreachable),
        (503, 2, Unreachable),
        (400, 131026, Rejected),
        (400, 131051, Rejected),
        (404, 132001, Rejected),
    ],
)
async def test_each_error_code_raises_its_error_class(
    far_side: WhatsAppFarSide, status: int, code: int, expected: type[PlatformError]
) -> None:
    far_side.server.error = (status, code)
    with pytest.raises(expected) as raised:
        await far_side.platform.send(far_side.private, Content(text="Hello?"), "error")
    if isinstance(raised.value, SlowDown):
        assert raised.value.everywhere is (False if code == 131056 else None)


async def test_many_choices_or_long_text_are_sent_as_a_list(far_side: WhatsAppFarSide) -> None:
    async with far_side.platform.connect() as arrivals:
        for number, text in ((4, "Which?"), (2, "long " * 300), (12, "Many")):
            buttons = tuple(Button(f"The choice with a long name {one}", f"choose:{one}") for one in range(number))
            ref = await far_side.platform.send(far_side.private, Content(text=text, buttons=buttons), text)
            shown = far_side.server.sent[-1]["interactive"]
            assert (shown["type"], len(_options(far_side.server.sent[-1]))) == ("list", min(number, 10))
            label = _options(far_side.server.sent[-1])[1]["title"]
            await far_side.presses(far_side.private, ref.message_id, label)
            pressed = await next_incoming(arrivals)
            assert (pressed.button, pressed.message_id) == ("choose:1", ref.message_id)


async def test_an_answered_message_is_marked_as_read_once(far_side: WhatsAppFarSide) -> None:
    async with far_side.platform.connect() as arrivals:
        first = far_side.server.write(ANN, "one")
        await next_incoming(arrivals)
        await far_side.platform.show_typing(far_side.private)
        await far_side.platform.send(far_side.private, Content(text="1"), "1")
        second = far_side.server.write(ANN, "two")
        await next_incoming(arrivals)
        await far_side.platform.send(far_side.private, Content(text="2"), "2")
    assert (far_side.server.read, far_side.server.typing) == ([first, second], [first])


async def test_files_are_sent_as_supported_message_types(far_side: WhatsAppFarSide, tmp_path: Path) -> None:
    files = []
    for name in ("cat.png", "voice.ogg", "notes.md", "all.zip"):
        (tmp_path / name).write_bytes(name.encode())
        files.append(File(str(tmp_path / name), name))
    await far_side.platform.send(far_side.private, Content(text="Four.", files=tuple(files)), "files")
    await far_side.platform.send(far_side.private, Content(text="**One**", files=(files[0],)), "file")
    text, picture, voice, notes, link, captioned = far_side.server.sent
    assert [one["type"] for one in (text, picture, voice, notes)] == ["text", "image", "audio", "document"]
    assert far_side.server.media[notes["document"]["id"]] == ("text/plain", b"notes.md")
    assert link["text"]["body"].startswith(f"{PUBLIC}/files/")
    assert captioned["image"]["caption"] == "*One*"


async def test_a_file_beyond_the_limit_is_not_downloaded(far_side: WhatsAppFarSide, tmp_path: Path) -> None:
    async with far_side.platform.connect() as arrivals:
        far_side.server.send_media(ANN, "audio", bytes(1024 * 1024 + 1), mime_type="audio/ogg; codecs=opus")
        (attachment,) = (await next_incoming(arrivals)).attachments
    assert (attachment.kind, attachment.media_type) == ("voice", "audio/ogg")
    with pytest.raises(Rejected, match="more than 1048576 bytes"):
        await far_side.platform.fetch(attachment, tmp_path)


async def test_setup_tests_the_token_and_the_answers(far_side: WhatsAppFarSide) -> None:
    number, token, _, _, url, port = SETUP.questions
    assert number.problem is not None
    assert token.check is not None
    assert url.problem is not None
    assert port.problem is not None
    options = {"api_url": far_side.server.url, "public_url": PUBLIC, "phone_number_id": NUMBER_ID}
    secrets = {"WHATSAPP_TOKEN": TOKEN, "WHATSAPP_APP_SECRET": SECRET, "WHATSAPP_VERIFY_TOKEN": VERIFY_TOKEN}
    right = await token.check(NetworkTrial(secrets, options))
    assert right.sentence == "WhatsApp accepted the token: Winged (+1 555-078-3881)."
    wrong = [({"WHATSAPP_TOKEN": "wrong"}, {}), ({}, {"phone_number_id": "12345"})]
    for secret, option in wrong:
        assert (await token.check(NetworkTrial(secrets | secret, options | option))).outcome == "refused"
    assert (number.problem(NUMBER_ID), url.problem(PUBLIC), port.problem("1")) == ("", "", "")
    assert "not the phone number" in number.problem("+1 555")
    assert "https" in url.problem("http://talaria.example")
    assert "port" in port.problem("0")
    assert SETUP.doctor is not None
    assert SETUP.doctor(NetworkTrial(secrets, options)) == ()
    assert "public_url" in SETUP.doctor(NetworkTrial(secrets))[0]


@pytest.mark.parametrize(
    "options",
    [{}, {"phone_number_id": "+1"}, {"phone_number_id": NUMBER_ID, "wndow": "1"}, {"public_url": "http://x.example"}],
)
def test_wrong_options_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(Refused, match=r"platforms\.whatsapp"):
        read_settings("whatsapp", {"public_url": PUBLIC, **options}, WhatsAppSecrets(TOKEN, SECRET, VERIFY_TOKEN))
