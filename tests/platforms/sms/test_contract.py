"""The contract suite on SMS, and what only Twilio has: its signatures, keywords, missed posts, and media by link."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from urllib.parse import unquote, urlencode

import pytest
from aiohttp import ClientSession

from talaria.contracts.platform import Content
from talaria.contracts.setup import NetworkTrial
from talaria.contracts.store import Store
from talaria.core.addresses import Address
from talaria.core.errors import BadCredentials, Refused, Rejected
from talaria.core.messages import File
from talaria.platforms.sms.adapter import Sms
from talaria.platforms.sms.settings import SmsSettings, TwilioCredentials, read_settings
from talaria.platforms.sms.setup import SETUP
from talaria.platforms.sms.wire import sign_form, signed_urls
from talaria.platforms.webhook_endpoint import EndpointSettings
from talaria.testing.far_side import WebhookFarSide
from talaria.testing.platform_suite import PlatformSuite, VisibleMessage, arrival, next_incoming
from talaria.testing.system_servers import free_port
from talaria.testing.twilio_server import ACCOUNT, NUMBER, TwilioServer, twilio_server
from talaria.testing.wait import until

pytestmark = pytest.mark.one_engine
TOKEN, ANN = "0123456789abcdef0123456789abcdef", "+14155550101"
PUBLIC = "https://talaria.example/sms"
CREDENTIALS = TwilioCredentials(ACCOUNT, TOKEN, NUMBER)


class SmsFarSide(WebhookFarSide):
    def __init__(self, server: TwilioServer, store: Store, folder: Path) -> None:
        super().__init__(server, server.posts)
        self.port = free_port()
        server.tunnel = f"http://127.0.0.1:{self.port}/sms"
        self.settings = SmsSettings(
            credentials=CREDENTIALS,
            endpoint=EndpointSettings(public_url=PUBLIC, port=self.port),
            api_url=server.url,
            interval=timedelta(seconds=0.2),
            file_limit=1024 * 1024,
            patience=timedelta(seconds=5),
        )
        self.platform = Sms(self.settings, store, folder)
        self.secret = TOKEN
        self.private = Address("sms", ANN)
        self.group: Address | None = None
        self.thread: Address | None = None
        self.nowhere = Address("sms", "+14155550199")
        self.server = server

    async def says(self, at: Address, text: str, *, addressed: bool = True) -> None:
        self.server.say(at.chat_id, text)

    async def sends_file(self, at: Address, name: str, data: bytes) -> None:
        self.server.say(at.chat_id, "", "image/png", data)

    async def presses(self, at: Address, message_id: str, label: str) -> None:
        raise NotImplementedError

    async def seen(self, at: Address) -> list[VisibleMessage]:
        return [
            VisibleMessage(
                message_id=one["sid"],
                text=one["body"],
                files=tuple(
                    unquote(link.rpartition("/")[2])
                    for link in [*one["media"], one["body"]]
                    if link.startswith(f"{PUBLIC}/files/")
                ),
            )
            for one in self.server.sent
            if one["to"] == at.chat_id
        ]


@pytest.fixture
async def far_side(store: Store, tmp_path: Path) -> AsyncIterator[SmsFarSide]:
    async with twilio_server(TOKEN, frozenset({ANN})) as server:
        there = SmsFarSide(server, store, tmp_path)
        try:
            yield there
        finally:
            await there.platform.close()


class TestSms(
    PlatformSuite,
    lacks={"servers", "groups", "threads", "edits", "buttons", "typing", "reactions", "idempotent", "deaf"},
):
    pass


@pytest.mark.parametrize(
    ("caller", "signature"),
    [("+14158675309", "RSOYDt4T1cUTdK1PDd93/VVr8B8="), ("+12349013030", "0/KCTR6DLpKmkAf8muzZqo1nDgQ=")],
)
def test_signatures_match_the_published_examples(caller: str, signature: str) -> None:
    """The examples come from the tests of the official SDK and from Twilio's page on security."""
    form = {"CallSid": ["CA1234567890ABCDE"], "Caller": [caller], "Digits": ["1234"], "From": [caller]}
    url = "https://mycompany.com/myapp.php?foo=1&bar=2"
    assert sign_form("12345", url, {**form, "To": ["+18005551212"]}) == signature


def test_the_port_of_a_signed_address_is_optional() -> None:
    with_port = "https://bot.example:8443/sms?a=1"
    assert set(signed_urls(with_port)) == {with_port, "https://bot.example/sms?a=1"}
    assert set(signed_urls(PUBLIC)) == {PUBLIC, "https://talaria.example:443/sms"}


@pytest.mark.parametrize("signature", ["", "bm90IHRoZSBzaWduYXR1cmU="])
async def test_a_post_without_the_right_signature_is_refused(far_side: SmsFarSide, signature: str) -> None:
    form = {"MessageSid": "SM" + "0" * 32, "From": ANN, "Body": "Let me in."}
    headers = {"x-twilio-signature": signature, "content-type": "application/x-www-form-urlencoded"}
    async with far_side.platform.connect() as arrivals, ClientSession() as session:
        async with session.post(far_side.server.tunnel, data=urlencode(form), headers=headers) as refused:
            assert refused.status == 401
        await far_side.says(far_side.private, "signed")
        assert (await next_incoming(arrivals)).text == "signed"


async def test_missed_posts_are_read_from_the_message_list(far_side: SmsFarSide) -> None:
    far_side.server.page_size = 2
    async with far_side.platform.connect():
        pass
    for number in range(7):
        far_side.server.say(ANN, f"missed {number}")
    far_side.server.say(ANN, "a picture", "image/png", b"\x89PNG")
    async with far_side.platform.connect() as arrivals:
        arrived = [await next_incoming(arrivals) for _ in range(8)]
        assert [one.text for one in arrived] == [*(f"missed {number}" for number in range(7)), "a picture"]
        assert [(one.kind, one.media_type) for one in arrived[-1].attachments] == [("picture", "image/png")]
        far_side.server.sms_url = ""  # posts go nowhere while we are connected
        far_side.server.say(ANN, "lost")
        assert (await arrival(arrivals, lambda one: one.text == "lost")).sender.id == ANN


async def test_first_connection_ignores_older_messages(far_side: SmsFarSide) -> None:
    far_side.server.say(ANN, "an hour ago")
    far_side.server.received[0]["at"] -= 3600
    async with far_side.platform.connect() as arrivals:
        far_side.server.say(ANN, "now")
        assert (await next_incoming(arrivals)).text == "now"


async def test_person_who_sent_stop_gets_no_messages_until_start(far_side: SmsFarSide) -> None:
    async with far_side.platform.connect() as arrivals:
        for text in ("help", " Stop ", "HELP"):
            far_side.server.say(ANN, text)
        await until(lambda: far_side.server.posts.accepted == 3)
        with pytest.raises(Rejected, match="opted out with STOP"):
            await far_side.platform.send(far_side.private, Content(text="Still there?"), "stopped")
        assert far_side.server.sent == []
        far_side.server.say(ANN, "start")
        far_side.server.say(ANN, "yes")
        assert (await next_incoming(arrivals)).text == "yes"  # people who get messages can say yes to the agent
        await far_side.platform.send(far_side.private, Content(text="Welcome back."), "back")
    assert [one["body"] for one in far_side.server.sent] == ["Welcome back."]


async def test_an_opt_out_that_only_twilio_knows_is_reported(far_side: SmsFarSide) -> None:
    far_side.server.opted_out.add(ANN)
    with pytest.raises(Rejected, match="opted out with STOP"):
        await far_side.platform.send(far_side.private, Content(text="Hello?"), "unknown")


async def test_pictures_are_shown_and_other_files_are_links(far_side: SmsFarSide, tmp_path: Path) -> None:
    picture, table = tmp_path / "cat.png", tmp_path / "table.csv"
    picture.write_bytes(b"\x89PNG")
    table.write_bytes(b"a,b")
    files = (File(str(picture), "cat.png"), File(str(table), "table.csv"))
    async with far_side.platform.connect(), ClientSession() as session:
        await far_side.platform.send(far_side.private, Content(text="Both.", files=files), "files")
        shown, linked = far_side.server.sent
        assert (shown["body"], len(shown["media"]), linked["media"]) == ("Both.", 1, [])
        async with session.get(shown["media"][0].replace(PUBLIC, far_side.server.tunnel)) as found:
            assert await found.read() == b"\x89PNG"
        async with session.get(linked["body"].replace(PUBLIC, far_side.server.tunnel)) as found:
            assert await found.read() == b"a,b"


async def test_a_number_of_another_account_is_reported(far_side: SmsFarSide, store: Store, tmp_path: Path) -> None:
    settings = read_settings(
        "sms",
        {"public_url": PUBLIC, "port": str(free_port()), "api_url": far_side.server.url},
        TwilioCredentials(ACCOUNT, TOKEN, "+14155550177"),
    )
    platform = Sms(settings, store, tmp_path)
    with pytest.raises(BadCredentials, match=r"doesn't have the number \+14155550177"):
        async with platform.connect():
            pass
    await platform.close()


async def test_setup_tests_account_number_and_address(far_side: SmsFarSide) -> None:
    account, number, token, url, port = SETUP.questions
    assert account.problem is not None
    assert number.problem is not None
    assert token.check is not None
    assert url.problem is not None
    assert port.problem is not None
    options = {"api_url": far_side.server.url, "public_url": PUBLIC}
    secrets = {"TWILIO_ACCOUNT_SID": ACCOUNT, "TWILIO_AUTH_TOKEN": TOKEN, "TWILIO_PHONE_NUMBER": NUMBER}
    right = await token.check(NetworkTrial(secrets, options))
    assert right.sentence == f"Twilio accepted the token: {NUMBER}."
    for wrong in ({"TWILIO_AUTH_TOKEN": "wrong"}, {"TWILIO_PHONE_NUMBER": "+14155550177"}):
        assert (await token.check(NetworkTrial({**secrets, **wrong}, options))).outcome == "refused"
    assert (account.problem(ACCOUNT), number.problem(NUMBER), url.problem(PUBLIC), port.problem("1")) == ("",) * 4
    assert "AC" in account.problem("SK123")
    assert "country code" in number.problem("0415 555")
    assert "http" in url.problem("bot.example")
    assert "port" in port.problem("0")
    assert SETUP.doctor is not None
    assert SETUP.doctor(NetworkTrial(secrets, options)) == ()
    assert "public_url" in SETUP.doctor(NetworkTrial(secrets))[0]


@pytest.mark.parametrize("options", [{}, {"public_url": PUBLIC, "intervall": "1"}, {"public_url": "nowhere"}])
def test_wrong_options_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(Refused, match=r"platforms\.sms"):
        read_settings("sms", options, CREDENTIALS)
