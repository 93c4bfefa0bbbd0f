"""Push notifications: encryption as in the example of RFC 8291, and delivery to a strict service."""

import stat
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from tests.api.in_process_server import Hosted, hosted
from tests.web.push_service import PushService, decode, encode, push_service
from tests.web.web_client import begin, stream, web_client

from talaria.access.browsers import PushSubscription, find_subscriptions
from talaria.access.pairing import offer_code
from talaria.contracts.stores.access import PairedPerson
from talaria.testing.model_server import Ask, ModelServer, Say
from talaria.testing.wait import until
from talaria.web.push_encryption import encrypt

PUSH = '[api]\npush_hosts = ["127.0.0.1"]\n[people.alice]\nids = ["telegram:7"]\n[gateway]\ndrain_seconds = 1.0\n'


@pytest.fixture
async def service() -> AsyncIterator[PushService]:
    async with push_service() as one:
        yield one


@pytest.fixture
async def pushing(tmp_path: Path, model: ModelServer) -> AsyncIterator[Hosted]:
    async with hosted(tmp_path, model, PUSH) as server:
        yield server


@pytest.fixture
async def browser(pushing: Hosted) -> AsyncIterator[httpx.AsyncClient]:
    async with web_client(pushing) as client:
        yield client


async def _subscriptions(host: Hosted, person: str = "") -> int:
    return len(await host.application.store.read(lambda tx: find_subscriptions(tx, person)))


async def _subscribe(client: httpx.AsyncClient, service: PushService, **options: object) -> None:
    answer = await client.put("/web/push", json=service.subscription(**options))
    assert answer.status_code == 200, answer.text
    assert answer.json()["subscribed"] is True


async def _until_arrived(service: PushService, count: int = 1) -> None:
    await until(lambda: len(service.messages) + len(service.refusals) >= count)
    assert service.refusals == []


def test_encryption_matches_the_example_of_rfc_8291() -> None:
    """The example of RFC 8291, section 5."""
    subscription = PushSubscription(
        endpoint="https://push.example.net/push/JzLQ3raZJfFBR0aqvOMsLrt54w4rJUsV",
        p256dh="BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4",
        auth="BTBZMqHH6r4Tts7J_aSIgg",
    )
    number = int.from_bytes(decode("yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw"), "big")
    own_key = ec.derive_private_key(number, ec.SECP256R1())
    text = b"When I grow up, I want to be a watermelon"
    sealed = encrypt(text, subscription, salt=decode("DGv6ra1nlYgDCS1FRnbzlw"), own_key=own_key)
    assert encode(sealed) == (
        "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6Tlz"
        "AC8wEqKK6PBru3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
    )


async def test_an_answer_is_pushed_without_its_text(
    browser: httpx.AsyncClient, pushing: Hosted, service: PushService, model: ModelServer
) -> None:
    model.otherwise(Say("Secret words."))
    await _subscribe(browser, service)
    key_file = pushing.application.profile.folder / "push-key.pem"
    assert stat.S_IMODE(key_file.stat().st_mode) == 0o600
    session = await begin(browser, "Hello")
    await _until_arrived(service)
    assert service.messages == [{"title": "New answer", "body": "", "path": f"/c/{session}", "tag": f"/c/{session}"}]


async def test_text_is_pushed_only_if_the_subscription_shows_content(
    browser: httpx.AsyncClient, service: PushService, model: ModelServer
) -> None:
    model.otherwise(Say("Plain words."))
    await _subscribe(browser, service, shows_content=True)
    await begin(browser, "Hello")
    await _until_arrived(service)
    assert service.messages[0]["body"] == "Plain words."


async def test_an_approval_is_pushed(browser: httpx.AsyncClient, service: PushService, model: ModelServer) -> None:
    model.script(Say(calls=[Ask("terminal", {"command": "rm -rf *"})]))
    model.otherwise(Say("Done."))
    await _subscribe(browser, service, shows_content=True)
    await begin(browser, "Clean up")
    await _until_arrived(service)
    assert "rm -rf" in service.messages[0]["body"]


async def test_the_result_of_a_job_is_pushed(
    browser: httpx.AsyncClient, model: ModelServer, service: PushService
) -> None:
    model.otherwise(Say("It rains."))
    await _subscribe(browser, service, shows_content=True)
    added = await browser.post("/web/schedules", json={"prompt": "every day 7:00 Weather?", "deliver": ["web"]})
    assert added.status_code == 201, added.text
    assert (await browser.post(f"/web/schedules/{added.json()['id']}/run", json={})).status_code == 200
    await _until_arrived(service)
    assert service.messages[0]["body"] == "It rains."


async def test_a_pairing_request_is_pushed_to_the_owner(
    browser: httpx.AsyncClient, pushing: Hosted, service: PushService
) -> None:
    await _subscribe(browser, service, shows_content=True)
    person = PairedPerson("telegram", "42", "Ann")
    await pushing.application.store.write(lambda tx: offer_code(tx, person))
    await _until_arrived(service)
    assert (service.messages[0]["title"], service.messages[0]["path"]) == ("Ann on Telegram", "/people")


async def test_nothing_is_pushed_while_a_page_is_visible(
    browser: httpx.AsyncClient, service: PushService, model: ModelServer
) -> None:
    model.otherwise(Say("Words."))
    await _subscribe(browser, service)
    async with stream(browser, "sessions", "seen:app") as messages:
        await begin(browser, "Hello")
        async for message in messages:
            if message["topic"] == "notice":
                break
        assert message["kind"] == "answered"
    assert service.messages == []


async def test_expired_subscription_is_removed(
    browser: httpx.AsyncClient, pushing: Hosted, service: PushService
) -> None:
    await _subscribe(browser, service)
    service.status = 410
    await browser.post("/web/push/test", json={})
    assert len(service.messages) == 1
    assert await _subscriptions(pushing) == 0
    assert (await browser.get("/web/push")).json()["subscribed"] is False


async def test_signing_out_removes_the_subscription(
    browser: httpx.AsyncClient, pushing: Hosted, service: PushService
) -> None:
    await _subscribe(browser, service)
    await browser.post("/web/logout", json={})
    assert await _subscriptions(pushing) == 0


async def test_each_person_gets_only_their_own_notifications(
    browser: httpx.AsyncClient, pushing: Hosted, service: PushService, model: ModelServer
) -> None:
    model.otherwise(Say("For alice."))
    async with web_client(pushing, person="alice") as alice, push_service() as other:
        await _subscribe(browser, service, shows_content=True)
        await _subscribe(alice, other, shows_content=True)
        await begin(alice, "Hello")
        await _until_arrived(other)
    assert service.messages == []


@pytest.mark.parametrize(
    "endpoint",
    ["https://example.org/push", "http://10.0.0.1/x", "https://127.0.0.1.example.org/x", "ftp://127.0.0.1/x"],
)
async def test_only_known_push_services_are_used(
    browser: httpx.AsyncClient, service: PushService, endpoint: str
) -> None:
    refused = await browser.put("/web/push", json={**service.subscription(), "endpoint": endpoint})
    assert refused.status_code == 409, refused.text
    assert "isn't a known push service" in refused.json()["error"]["message"]


@pytest.mark.parametrize(
    ("hours", "at", "quiet"),
    [
        (("22:00", "07:00"), 23, True),
        (("22:00", "07:00"), 6, True),
        (("22:00", "07:00"), 12, False),
        (("09:00", "17:00"), 12, True),
        (("", ""), 3, False),
    ],
)
def test_quiet_hours_are_in_the_zone_of_the_subscription(hours: tuple[str, str], at: int, quiet: bool) -> None:
    subscription = PushSubscription(
        endpoint="", p256dh="", auth="", quiet_from=hours[0], quiet_to=hours[1], zone="Asia/Tokyo"
    )
    assert subscription.is_quiet(datetime(2026, 1, 2, (at - 9) % 24, 30, tzinfo=UTC)) is quiet
