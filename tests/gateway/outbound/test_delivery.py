"""Delivery of the outbox: in order per chat, chats in parallel, with retries after network failures."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import apsw
import pytest
from msgspec import structs
from tests.gateway.outbound.delivery_fixture import HERE, QUICK, OutboxFixture, delivering
from tests.storage.engines import StoreLocation

from talaria.contracts.clock import SystemClock
from talaria.contracts.platform import Button, Content, MessageRef, Rate, Rates
from talaria.contracts.store import Store
from talaria.contracts.stores.queues import Outgoing
from talaria.core.addresses import Address
from talaria.core.ids import SessionId
from talaria.core.messages import File
from talaria.gateway.outbound.delivery import Delivery
from talaria.storage.sqlite.open import SqliteOptions
from talaria.storage.sqlite.store import open_sqlite_store
from talaria.testing.loopback_platform import CHATTY, Fault, LoopbackNetwork, LoopbackPlatform, LoopbackSettings
from talaria.testing.wait import LIMIT, until


@pytest.fixture
async def store(store_location: StoreLocation) -> AsyncIterator[Store]:
    """A store with a running clock, on each engine."""
    store = store_location.open_store(SystemClock())
    yield store
    await store.close()


@pytest.fixture
async def network() -> AsyncIterator[LoopbackNetwork]:
    async with LoopbackNetwork() as network:
        yield network


async def test_reply_is_sent_to_the_address_it_was_queued_for(store: Store, network: LoopbackNetwork) -> None:
    outbox = OutboxFixture(store)
    there = Address("loopback", "1", "thread", "7", "ann")
    await outbox.reply("t1", "hello", there, reply_to="42")
    async with delivering(store, network.platform()) as delivery:
        await outbox.until_empty()
        await until_idle(delivery)
        assert delivery.status.sent == 1
    [post] = network.posts
    assert (post.address, post.text, post.key, post.reply_to) == (there, "hello", "t1:1", "42")


async def test_replies_of_a_chat_are_sent_in_order_without_delaying_other_chats(
    store: Store, network: LoopbackNetwork
) -> None:
    outbox = OutboxFixture(store)
    network.disrupt(Fault("post", "unreachable", times=3, chat_id="slow"))
    for number in range(3):
        await outbox.reply(f"a{number}", f"a{number}", Address("loopback", "slow"))
        await outbox.reply(f"b{number}", f"b{number}", Address("loopback", "fast"))
    async with delivering(store, network.platform()):
        await outbox.until_empty()
    assert network.shown("slow") == ["a0", "a1", "a2"]
    assert network.shown("fast") == ["b0", "b1", "b2"]
    assert [post.text for post in network.posts][:3] != ["a0", "a1", "a2"]


async def test_queued_reply_is_sent_at_once_after_wake(store: Store, network: LoopbackNetwork) -> None:
    outbox = OutboxFixture(store)
    async with delivering(store, network.platform(), structs.replace(QUICK, poll=timedelta(hours=1))) as delivery:
        await outbox.reply("t1", "hello")
        delivery.wake()
        await network.posted(1)


async def test_reply_queued_by_another_process_is_delivered_at_once(
    store_location: StoreLocation, store: Store, network: LoopbackNetwork
) -> None:
    other = store_location.open_store(SystemClock(), "worker-2")
    async with delivering(store, network.platform(), structs.replace(QUICK, poll=timedelta(hours=1))):
        await OutboxFixture(other).reply("t1", "hello")
        await OutboxFixture(store).until_empty()
    await other.close()


async def test_queued_reply_is_found_by_polling_without_wake(store: Store, network: LoopbackNetwork) -> None:
    async with delivering(store, network.platform()):
        await OutboxFixture(store).reply("t1", "hello")
        await network.posted(1)


@pytest.mark.parametrize("trouble", ["unreachable", "disconnect", "hang"])
async def test_failed_post_is_retried_until_the_network_accepts_it(
    store: Store, network: LoopbackNetwork, trouble: str
) -> None:
    outbox = OutboxFixture(store)
    await outbox.reply("t1", "hello")
    network.disrupt(Fault("post", trouble, times=2))  # type: ignore[arg-type]
    async with delivering(store, network.platform(patience=0.1 if trouble == "hang" else LIMIT)) as delivery:
        await outbox.until_empty()
        assert delivery.status.retried >= 2  # on a busy machine, more answers than these come too late
    assert network.faults == []
    assert network.shown("1") == ["hello"]


async def test_hanging_call_times_out_and_is_retried(store: Store, network: LoopbackNetwork) -> None:
    outbox = OutboxFixture(store)
    await outbox.reply("t1", "hello")
    network.disrupt(Fault("post", "hang"))
    pace = structs.replace(QUICK, call=timedelta(milliseconds=100))
    async with delivering(store, network.platform(patience=60), pace) as delivery:
        await outbox.until_empty()
        assert delivery.status.retried >= 1
    assert network.faults == []


async def test_pause_for_one_chat_delays_no_other_chat(store: Store, network: LoopbackNetwork) -> None:
    outbox = OutboxFixture(store)
    network.disrupt(Fault("post", "slow_down", seconds=3600, chat_id="1"))
    await outbox.reply("t1", "first")
    async with delivering(store, network.platform()) as delivery:
        await outbox.until(lambda items: items[0].error != "")
        assert delivery.status.state == "serving"
        await outbox.reply("t2", "elsewhere", Address("loopback", "2"))
        delivery.wake()
        await network.posted(1)
    assert [post.text for post in network.posts] == ["elsewhere"]


async def test_pauses_for_two_chats_delay_the_whole_network(store: Store, network: LoopbackNetwork) -> None:
    outbox = OutboxFixture(store)
    pause = 2.0
    faults = [Fault("post", "slow_down", seconds=pause, chat_id=chat) for chat in ("1", "2")]
    network.disrupt(*faults)
    for chat in ("1", "2"):
        await outbox.reply(f"t{chat}", chat, Address("loopback", chat))
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with delivering(store, network.platform()) as delivery:
        await until(lambda: delivery.status.state == "held")
        await outbox.reply("t3", "3", Address("loopback", "3"))
        delivery.wake()
        await network.posted(1)
        assert loop.time() - began > pause
        await outbox.until_empty()
    assert sorted(post.text for post in network.posts) == ["1", "2", "3"]


async def until_idle(delivery: Delivery) -> None:
    """Wait until the delivery is idle, which is a moment after the outbox is empty."""
    await until(delivery.is_idle)


async def test_refused_reply_is_stored_with_the_reason_and_the_next_one_is_sent(
    store: Store, network: LoopbackNetwork
) -> None:
    outbox = OutboxFixture(store)
    network.disrupt(Fault("post", "refuse"))
    await outbox.reply("t1", "never")
    await outbox.reply("t2", "next")
    async with delivering(store, network.platform()) as delivery:
        await network.posted(1)
        [failed] = await outbox.until(lambda items: len(items) == 1)
        await until_idle(delivery)
        assert delivery.status.failed == 1
    assert (failed.key, failed.state, failed.error) == ("t1", "failed", "post: refuse, requested by the test")
    assert network.shown("1") == ["next"]


async def test_replies_of_a_refused_account_wait_until_its_credentials_work(
    store: Store, network: LoopbackNetwork
) -> None:
    outbox = OutboxFixture(store)
    network.disrupt(Fault("post", "bad_credentials", times=0))
    for number in range(3):
        await outbox.reply(f"t{number}", str(number), Address("loopback", str(number)))
    pace = structs.replace(QUICK, longest_pause=timedelta(hours=1))
    async with delivering(store, network.platform(), pace) as delivery:
        found = await outbox.until(lambda items: all(item.state == "waiting" and item.attempts for item in items))
        assert (delivery.status.state, len(found)) == ("refused", 3)
        network.disrupt()
        delivery.resume()
        await outbox.until_empty()
        await until_idle(delivery)
        assert (delivery.status.state, delivery.status.sent) == ("serving", 3)


async def test_reply_interrupted_by_a_refused_account_continues_when_credentials_work(store: Store) -> None:
    outbox = OutboxFixture(store)
    pace = structs.replace(QUICK, longest_pause=timedelta(hours=1))
    async with LoopbackNetwork(structs.replace(CHATTY, text_limit=20)) as network:
        network.disrupt(
            Fault("post", "delay", chat_id="1", seconds=0.3),
            Fault("post", "bad_credentials", chat_id="2", times=0),
        )
        await outbox.reply("t1", "one two three\n\nfour five six", Address("loopback", "1"))
        await outbox.reply("t2", "never", Address("loopback", "2"))
        async with delivering(store, network.platform(), pace) as delivery:
            await until(lambda: delivery.status.state == "refused" and not delivery.status.under_way)
            network.disrupt()
            delivery.resume()
            await outbox.until_empty()
        assert (network.shown("1"), network.shown("2")) == (["one two three", "four five six"], ["never"])


async def test_long_reply_is_split_and_continues_after_the_last_sent_piece(store: Store) -> None:
    outbox = OutboxFixture(store)
    async with LoopbackNetwork(structs.replace(CHATTY, text_limit=20)) as network:
        await outbox.reply("t1", "one two three\n\nfour five six\n\nseven eight nine", reply_to="5")
        network.disrupt(Fault("post", "slow_down", times=0, seconds=0.05))
        async with delivering(store, network.platform()):
            await outbox.until(lambda items: items[0].attempts > 0)
            network.disrupt(delay=0.02)
            await network.posted(2)
            network.disrupt(Fault("post", "unreachable"))
            await outbox.until_empty()
        assert network.shown("1") == ["one two three", "four five six", "seven eight nine"]
        assert [(post.key, post.reply_to) for post in network.posts] == [("t1:1", "5"), ("t1:2", ""), ("t1:3", "")]


async def test_files_and_buttons_are_sent_with_the_reply(
    store: Store, network: LoopbackNetwork, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("a")
    content = Content(text="Take this?", buttons=(Button("Yes", "y"),), files=(File(str(tmp_path / "a.txt"), "a.txt"),))
    outbox = OutboxFixture(store)
    await outbox.queue("t1", content)
    async with delivering(store, network.platform()):
        await outbox.until_empty()
    text, file = network.posts
    assert (text.text, text.buttons) == ("Take this?", (Button("Yes", "y"),))
    assert (file.files, file.key) == (("a.txt",), "t1:2")


async def test_unreadable_outbox_row_is_marked_failed_and_blocks_no_other(
    store: Store, network: LoopbackNetwork
) -> None:
    outbox = OutboxFixture(store)
    strange = Outgoing(key="k", session_id=SessionId("s"), address=HERE, payload="{")
    await store.write(lambda tx: tx.outbox.add(strange))
    await outbox.reply("t1", "hello")
    async with delivering(store, network.platform()):
        await network.posted(1)
    assert [item.state for item in await outbox.undelivered()] == ["failed"]


async def test_empty_reply_is_settled_without_posting(store: Store, network: LoopbackNetwork) -> None:
    outbox = OutboxFixture(store)
    await outbox.reply("t1", " \n")
    async with delivering(store, network.platform()):
        await outbox.until_empty()
    assert network.records == []


async def test_chats_are_served_in_parallel_with_one_message_at_a_time_each(
    store: Store, network: LoopbackNetwork
) -> None:
    outbox = OutboxFixture(store)
    network.disrupt(Fault("post", "hang", times=0))
    for number in range(12):
        await outbox.reply(f"t{number}", str(number), Address("loopback", str(number % 4)))
    async with delivering(store, network.platform(patience=60), structs.replace(QUICK, call=timedelta(minutes=1))):
        found = await outbox.until(lambda items: [item.state for item in items].count("sending") == 4)
        assert [item.key for item in found if item.state == "sending"] == ["t0", "t1", "t2", "t3"]


async def test_rate_limit_of_a_chat_delays_no_other_chat(store: Store) -> None:
    outbox = OutboxFixture(store)
    rates = Rates(chat=Rate(per_second=1 / 3600, burst=2), network=Rate(per_second=100, burst=3))
    async with LoopbackNetwork(structs.replace(CHATTY, rates=rates)) as network:
        for number in range(4):
            await outbox.reply(f"a{number}", f"a{number}", Address("loopback", "1"))
        for number in range(2, 22):
            await outbox.reply(f"b{number}", "b", Address("loopback", str(number)))
        async with delivering(store, network.platform()) as delivery:
            await outbox.until(lambda items: len(items) == 2)
            await until_nothing_is_under_way(delivery)
            assert delivery.status.retried == 0
        assert [item.key for item in await outbox.undelivered()] == ["a2", "a3"]
        assert network.shown("1") == ["a0", "a1"]


async def test_long_reply_delays_no_other_chat(store: Store) -> None:
    outbox = OutboxFixture(store)
    rates = Rates(chat=Rate(per_second=0.5, burst=1))
    async with LoopbackNetwork(structs.replace(CHATTY, rates=rates, text_limit=10)) as network:
        for chat in range(20):  # more than are called in parallel
            await outbox.reply(f"a{chat}", "word " * 20, Address("loopback", f"long{chat}"))
        async with delivering(store, network.platform()):
            await network.posted(20)
            await outbox.reply("b", "short", Address("loopback", "short"))
            await network.until(lambda: network.shown("short") == ["short"])
            assert {f"a{chat}" for chat in range(20)} <= {item.key for item in await outbox.undelivered()}


async def until_nothing_is_under_way(delivery: Delivery) -> None:
    await until(lambda: not delivery.status.under_way)


async def test_reply_over_the_limit_is_cut_and_attached_as_a_file(
    store: Store, network: LoopbackNetwork, tmp_path: Path
) -> None:
    outbox = OutboxFixture(store)
    text = "A line of some words.\n" * 20_000
    await outbox.reply("t1", text)
    async with delivering(store, network.platform(), files=tmp_path, reply_limit=5_000):
        await outbox.until_empty()
    *texts, file = network.posts
    assert sum(len(post.text) for post in texts) < 5_200
    assert texts[-1].text.endswith("✂ This reply has 440,000 characters. The attached file has the full text.")
    assert file.files == ("reply.md",)
    assert [stored.read_text() for stored in tmp_path.rglob("*.md")] == [text]  # noqa: ASYNC240 - a test may wait


async def test_hanging_post_in_one_chat_delays_no_other_chat(store: Store, network: LoopbackNetwork) -> None:
    outbox = OutboxFixture(store)
    network.disrupt(Fault("post", "hang", chat_id="slow"))
    await outbox.reply("t0", "slow", Address("loopback", "slow"))
    for number in range(5):
        await outbox.reply(f"t{number + 1}", str(number), Address("loopback", str(number)))
    async with delivering(store, network.platform(patience=60)):
        await network.posted(5)
        await outbox.until_empty()
    assert network.shown("slow") == ["slow"]


async def test_posts_under_way_are_finished_and_recorded_at_shutdown(store: Store) -> None:
    async with LoopbackNetwork(structs.replace(CHATTY, idempotent=True)) as network:
        await check_posts_finish_at_shutdown(store, network)


async def check_posts_finish_at_shutdown(store: Store, network: LoopbackNetwork) -> None:
    outbox = OutboxFixture(store)
    for number in range(5):
        await outbox.reply(f"t{number}", str(number), Address("loopback", str(number)))
    network.disrupt(delay=0.2)
    async with delivering(store, network.platform()) as delivery:
        # A claim is in the store a moment before the delivery that made it counts it.
        await outbox.until(lambda items: delivery.status.under_way == 5 and len(items) == 5)
    assert await outbox.undelivered() == []
    assert len(network.posts) == 5


async def test_sent_reply_is_recorded_before_shutdown_despite_a_locked_store(
    sqlite_location: StoreLocation, network: LoopbackNetwork
) -> None:
    store = open_sqlite_store(Path(sqlite_location.address), SqliteOptions(busy_timeout_seconds=0.05))
    outbox = OutboxFixture(store)
    await outbox.reply("t1", "hello")
    network.disrupt(Fault("post", "delay", seconds=0.3))
    delivery = Delivery(store, network.platform(), pace=structs.replace(QUICK, grace=timedelta(seconds=0.01)))
    serving = asyncio.ensure_future(delivery.serve())
    await outbox.until(lambda items: items[0].state == "sending")
    with closing(apsw.Connection(sqlite_location.address)) as other:
        other.set_busy_timeout(200)  # milliseconds: the claim may still be committing
        other.execute("BEGIN IMMEDIATE")  # nothing can be recorded
        await network.posted(1)
        serving.cancel()
        await asyncio.wait([serving], timeout=0.5)
        other.execute("ROLLBACK")
    await asyncio.wait([serving])
    assert await outbox.undelivered() == []
    await store.close()


async def test_long_reply_stops_between_two_pieces_at_shutdown_and_repeats_none(store: Store) -> None:
    outbox = OutboxFixture(store)
    async with LoopbackNetwork(structs.replace(CHATTY, text_limit=10)) as network:
        await outbox.reply("t1", " ".join(f"word{number}" for number in range(20)))
        network.disrupt(delay=0.1)
        async with delivering(store, network.platform()):
            await network.posted(2)
        [item] = await outbox.undelivered()
        assert item.state == "waiting"
        network.disrupt()
        async with delivering(store, network.platform()) as delivery:
            await outbox.until_empty()
            assert delivery.status.repeated == 0
        assert network.shown("1") == [f"word{number}" for number in range(20)]


async def test_two_workers_share_an_outbox_and_send_nothing_twice(
    store_location: StoreLocation, network: LoopbackNetwork
) -> None:
    mine, theirs = store_location.open_store(SystemClock(), "one"), store_location.open_store(SystemClock(), "two")
    try:
        outbox = OutboxFixture(mine)
        for number in range(60):
            await outbox.reply(f"t{number}", str(number), Address("loopback", str(number % 7)))
        async with delivering(mine, network.platform()), delivering(theirs, network.platform()):
            await outbox.until_empty()
        assert len(network.posts) == 60
        for chat in range(7):
            assert network.shown(str(chat)) == [str(number) for number in range(60) if number % 7 == chat]
    finally:
        await mine.close()
        await theirs.close()


async def test_exception_of_an_adapter_delays_only_the_message_that_raised_it(
    store: Store, network: LoopbackNetwork
) -> None:
    outbox = OutboxFixture(store)
    await outbox.reply("t1", "bad", Address("loopback", "bad"))
    await outbox.reply("t2", "good")
    platform = BuggyPlatform(LoopbackSettings(address=network.address))
    async with delivering(store, platform):
        await network.posted(1)
        [item] = await outbox.until(lambda items: len(items) == 1 and items[0].attempts > 1)
        assert item.error == "KeyError: 'bad'"
        platform.is_buggy = False
        await outbox.until_empty()
    platform.close()


class BuggyPlatform(LoopbackPlatform):
    """A third party's adapter with a bug."""

    is_buggy = True

    async def send(self, to: Address, content: Content, key: str) -> MessageRef:
        """Post one message, or raise KeyError."""
        if to.chat_id == "bad" and self.is_buggy:
            raise KeyError(to.chat_id)
        return await super().send(to, content, key)
