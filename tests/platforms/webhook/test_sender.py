"""Delivery of replies to their receivers."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path

import pytest
from tests.platforms.webhook.far_side import SECRETS, write_route
from tests.platforms.webhook.webhook_peers import SECRET, Receiver, receiver

from talaria.contracts.platform import Content, PlatformAccount
from talaria.contracts.store import Store
from talaria.core.addresses import Address
from talaria.core.errors import Refused, Rejected, SlowDown, Unreachable
from talaria.core.messages import File
from talaria.platforms.webhook.adapter import Webhooks, open_platform
from talaria.platforms.webhook.settings import WebhookSettings
from talaria.testing.system_servers import free_port

HUB = Address("webhook", "hub", thread_id="ann/harbour")
HELLO = Content(text="Hello.", reply_to="m1")


@pytest.fixture
async def there() -> AsyncIterator[Receiver]:
    async with receiver() as there:
        yield there


@pytest.fixture
async def webhooks(tmp_path: Path, there: Receiver) -> AsyncIterator[Webhooks]:
    write_route(tmp_path, "hub", deliver_to=there.url)
    settings = WebhookSettings(routes=str(tmp_path), port=free_port(), posting=timedelta(seconds=2))
    platform = Webhooks(settings, {**SECRETS, "OTHER": "another secret"}.get)
    yield platform
    await platform.close()


async def test_reply_contains_the_event_and_conversation_that_it_answers(webhooks: Webhooks, there: Receiver) -> None:
    await webhooks.send(HUB, HELLO, "turn:7")
    (reply,) = there.replies
    assert reply.key == there.posts[0]["webhook-id"] == "turn:7"
    assert reply.body == {
        "id": "turn:7", "route": "hub", "conversation": "ann/harbour", "reply_to": "m1", "text": "Hello.",
        "format": "markdown",
    }  # fmt: skip


async def test_replies_can_be_signed_with_a_separate_secret(
    webhooks: Webhooks, there: Receiver, tmp_path: Path
) -> None:
    write_route(tmp_path, "hub", deliver_to=there.url, deliver_secret="OTHER")
    with pytest.raises(Rejected, match="401"):
        await webhooks.send(HUB, HELLO, "k")
    there.secret = "another secret"
    await webhooks.send(HUB, HELLO, "k")
    assert [one.key for one in there.replies] == ["k"]


async def test_reply_without_a_receiver_is_not_posted(webhooks: Webhooks, there: Receiver, tmp_path: Path) -> None:
    write_route(tmp_path, "hub")
    assert (await webhooks.send(HUB, HELLO, "k")).message_id == "k"
    assert there.posts == []


@pytest.mark.parametrize(
    ("status", "error"),
    [(400, Rejected), (401, Rejected), (404, Rejected), (410, Rejected), (302, Rejected), (408, Unreachable),
     (500, Unreachable), (503, Unreachable), (429, SlowDown)],
)  # fmt: skip
async def test_each_status_of_the_receiver_raises_its_error(
    webhooks: Webhooks, there: Receiver, status: int, error: type[Exception]
) -> None:
    there.answer = lambda: status
    with pytest.raises(error) as raised:
        await webhooks.send(HUB, HELLO, "k")
    if isinstance(raised.value, SlowDown):
        assert (raised.value.retry_after, raised.value.everywhere) == (timedelta(seconds=7), False)
    assert SECRET not in str(raised.value)


async def test_missing_receiver_and_broken_route_are_reported_as_unreachable(
    webhooks: Webhooks, tmp_path: Path
) -> None:
    for fields in (
        {"deliver_to": f"http://127.0.0.1:{free_port()}/"},
        {"deliver_to": "http://127.0.0.1:1/", "secret": "GONE"},
        {"templat": "x"},
    ):
        write_route(tmp_path, "hub", **fields)
        with pytest.raises(Unreachable):
            await webhooks.send(HUB, HELLO, "k")


async def test_reply_with_files_is_refused(webhooks: Webhooks, tmp_path: Path) -> None:
    with pytest.raises(Rejected, match="can't contain files"):
        await webhooks.send(HUB, Content(text="Here.", files=(File(str(tmp_path / "x.txt"), "x.txt"),)), "k")


def account(store: Store, folder: Path, closing: AsyncExitStack, **options: str) -> PlatformAccount:
    return PlatformAccount(
        name="webhook", options=options, secret=SECRETS.get, store=store, folder=folder, closing=closing
    )


async def test_options_reach_the_adapter_which_closes_with_the_gateway(
    store: Store, tmp_path: Path, there: Receiver
) -> None:
    write_route(tmp_path / "mine", "hub", deliver_to=there.url)
    async with AsyncExitStack() as closing:
        options = {"port": str(free_port()), "patience": "PT2S", "routes": str(tmp_path / "mine")}
        platform = open_platform(account(store, tmp_path, closing, **options))
        await platform.send(HUB, HELLO, "k")
    assert [one.key for one in there.replies] == ["k"]


@pytest.mark.parametrize("options", [{"port": "http"}, {"port": "0"}, {"prot": "80"}, {"patience": "soon"}])
async def test_invalid_options_are_refused(store: Store, tmp_path: Path, options: dict[str, str]) -> None:
    async with AsyncExitStack() as closing:
        with pytest.raises(Refused, match=r"platforms\.webhook"):
            open_platform(account(store, tmp_path, closing, **options))
