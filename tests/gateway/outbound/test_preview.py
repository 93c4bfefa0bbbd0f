"""Previews of replies: edited while the turn runs, and replaced by the exact final text."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from datetime import timedelta
from pathlib import Path

import apsw
import pytest
from msgspec import structs
from tests.gateway.outbound.delivery_fixture import HERE, SESSION, OutboxFixture, delivering
from tests.storage.engines import StoreLocation

from talaria.commands.command import Display
from talaria.contracts.clock import SystemClock
from talaria.contracts.platform import Content, PlatformCapabilities
from talaria.contracts.store import Store, Transaction
from talaria.core.addresses import ReplyRoute
from talaria.core.events import QuestionAsked, TextAdded, ToolAnswered, ToolCalled, TurnAnswered
from talaria.core.ids import TurnId, WorkerId, new_worker_id
from talaria.core.messages import ToolCall, ToolResult
from talaria.gateway.outbound.message_writer import BLANK_TEXT, POSTED_MESSAGES, PostedMessages, Throttle
from talaria.gateway.outbound.preview import Preview, PreviewOptions
from talaria.storage.sqlite.open import SqliteOptions
from talaria.storage.sqlite.store import open_sqlite_store
from talaria.testing.loopback_platform import CHATTY, Fault, LoopbackNetwork
from talaria.testing.wait import LIMIT, until

FAST = structs.replace(CHATTY, edit_pace=timedelta(milliseconds=20))
TURN = TurnId("t1")
DEAD = WorkerId("elsewhere/0:1:dead")


@pytest.fixture
async def store(sqlite_location: StoreLocation) -> AsyncIterator[Store]:
    """A store with a running clock and a running turn."""
    store = sqlite_location.open_store(SystemClock())
    await store.write(lambda tx: tx.turns.begin(SESSION, TURN))
    yield store
    await store.close()


@asynccontextmanager
async def network_with(abilities: PlatformCapabilities = FAST) -> AsyncIterator[LoopbackNetwork]:
    async with LoopbackNetwork(abilities) as network:
        yield network


@pytest.fixture
async def network() -> AsyncIterator[LoopbackNetwork]:
    async with LoopbackNetwork(FAST) as network:
        yield network


@asynccontextmanager
async def previewing(
    store: Store,
    network: LoopbackNetwork,
    *,
    patience: float = 0.02,
    display: Display | None = None,
    call: float = 0.5,
    final_wait: float = 20,
) -> AsyncIterator[Preview]:
    """Show a turn while the block runs."""
    options = PreviewOptions(
        store=store,
        platform=network.platform(patience=30),
        throttle=Throttle(),
        worker=new_worker_id(),
        patience=patience,
        call=call,
        final_wait=final_wait,
        tool_lines_interval=0.02,
        typing=0.05,
    )
    preview = Preview(options, SESSION, TURN, ReplyRoute(HERE, "7"), display or Display())
    async with asyncio.TaskGroup() as group:
        task = group.create_task(preview.serve())
        yield preview
        preview.end()
        await task


async def finish(store: Store, network: LoopbackNetwork, text: str) -> None:
    """End the turn with its reply, and deliver that."""
    await store.write(lambda tx: tx.turns.end(TURN, "answered"))
    outbox = OutboxFixture(store)
    await outbox.reply(TURN, text, reply_to="7")
    async with delivering(store, network.platform()):
        await outbox.until_empty()


def tool_called(number: int, name: str = "read_file") -> ToolCalled:
    return ToolCalled(ToolCall(f"c{number}", name, '{"path": "notes"}'), f"{name} notes {number}")


def tool_answered(number: int, *, failed: bool = False) -> ToolAnswered:
    return ToolAnswered(ToolResult(f"c{number}", "line 1\nline 2", failed), "read_file", 0.1)


async def test_preview_grows_in_one_message_and_becomes_the_final_text(store: Store, network: LoopbackNetwork) -> None:
    text = "The quick brown fox jumps over the lazy dog, again and again."
    async with previewing(store, network) as preview:
        for word in text.split(" "):
            preview.handle_event(TextAdded(f"{word} "))
            await network.until(lambda: "".join(network.shown("1")).endswith(word))  # noqa: B023 (waited for here)
        assert network.shown("1") == [text]
    await finish(store, network, f"{text}\n\n`a footer`")
    assert network.shown("1") == [f"{text}\n\n`a footer`"]
    assert len(network.posts) == 1
    assert (network.posts[0].key, network.posts[0].reply_to) == ("t1:1", "7")
    assert [record.kind for record in network.records].count("edit") > 10
    assert await store.read(POSTED_MESSAGES.of_all) == []


async def test_preview_is_posted_after_a_failed_store_write_is_retried(
    sqlite_location: StoreLocation, network: LoopbackNetwork, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    store = open_sqlite_store(Path(sqlite_location.address), SqliteOptions(busy_timeout_seconds=0.05))
    await store.write(lambda tx: tx.turns.begin(SESSION, TURN))
    with closing(apsw.Connection(sqlite_location.address)) as other:
        other.execute("BEGIN IMMEDIATE")
        async with previewing(store, network, call=0.05) as preview:
            preview.handle_event(TextAdded("The quick brown fox."))
            await until(lambda: "a preview waits" in caplog.text)
            other.execute("ROLLBACK")
            await network.until(lambda: network.shown("1") == ["The quick brown fox."])
    await store.close()
    assert "a preview failed" not in caplog.text


async def test_preview_edits_respect_the_edit_pace_of_the_network(store: Store) -> None:
    async with network_with(structs.replace(FAST, edit_pace=timedelta(milliseconds=200))) as network:
        async with previewing(store, network) as preview:
            for number in range(5):
                preview.handle_event(TextAdded(f"word{number} "))
                await network.until(lambda: f"word{number}" in "".join(network.shown("1")))  # noqa: B023 (as above)
        times = [record.at for record in network.records if record.kind in ("post", "edit")]
        assert len(times) == 5
        assert times[-1] - times[0] > 0.4  # four pauses, minus any delay of the first message on a busy machine


async def test_a_quick_short_reply_has_no_preview(store: Store, network: LoopbackNetwork) -> None:
    async with previewing(store, network, patience=60) as preview:
        preview.handle_event(TextAdded("Yes."))
        preview.handle_event(TurnAnswered("Yes."))
    await finish(store, network, "Yes.")
    assert [record.kind for record in network.records if record.kind != "typing"] == ["post"]


async def test_preview_of_forty_characters_is_posted_at_once(store: Store, network: LoopbackNetwork) -> None:
    async with previewing(store, network, patience=60) as preview:
        preview.handle_event(TextAdded("x" * 40))
        await network.posted(1)


async def test_preview_of_a_long_reply_grows_over_several_messages(store: Store) -> None:
    text = "\n\n".join(f"Paragraph {number} has some words in it." for number in range(6))
    async with network_with(structs.replace(FAST, text_limit=80)) as network:
        async with previewing(store, network) as preview:
            for piece in text.split("\n\n"):
                preview.handle_event(TextAdded(f"{piece}\n\n"))
                await network.until(lambda: piece in "".join(network.shown("1")))  # noqa: B023 (as above)
            assert len(network.shown("1")) == 3
        await finish(store, network, text)
        assert "\n\n".join(network.shown("1")) == text
        assert len(network.posts) == 3


async def test_preview_message_beyond_the_final_text_is_blanked(store: Store) -> None:
    async with network_with(structs.replace(FAST, text_limit=50)) as network:
        async with previewing(store, network) as preview:
            preview.handle_event(TextAdded("word " * 20))
            await network.posted(2)
        await finish(store, network, "Stopped.")
        assert network.shown("1") == ["Stopped.", "⋯"]


async def test_another_worker_edits_the_preview_message_into_the_final_text(store_location: StoreLocation) -> None:
    mine, theirs = store_location.open_store(SystemClock(), "one"), store_location.open_store(SystemClock(), "two")
    await mine.write(lambda tx: tx.turns.begin(SESSION, TURN))
    try:
        async with network_with() as network:
            async with previewing(mine, network) as preview:
                preview.handle_event(TextAdded("Something is being said"))
                await network.posted(1)
            await finish(theirs, network, "Something is said.")
            assert network.shown("1") == ["Something is said."]
            assert len(network.posts) == 1
    finally:
        await mine.close()
        await theirs.close()


async def test_final_text_waits_for_a_preview_edit_under_way(store: Store, network: LoopbackNetwork) -> None:
    async with asyncio.TaskGroup() as group, previewing(store, network, call=5) as preview:
        preview.handle_event(TextAdded("Something is being said"))
        await network.posted(1)
        network.disrupt(Fault("edit", "delay", seconds=0.5))
        preview.handle_event(TextAdded(", and more of it"))
        await network.until(lambda: not network.faults)
        group.create_task(finish(store, network, "The end."))
    assert network.shown("1") == ["The end."]


@pytest.mark.parametrize("idempotent", [True, False])
async def test_preview_with_a_lost_answer_is_duplicated_only_without_idempotency_keys(
    store: Store, idempotent: bool
) -> None:
    async with network_with(structs.replace(FAST, idempotent=idempotent)) as network:
        network.disrupt(Fault("post", "lose_answer"))
        async with previewing(store, network) as preview:
            preview.handle_event(TextAdded("Something is being said"))
            await network.posted(1)
        await finish(store, network, "Something is said.")
        if idempotent:
            assert network.shown("1") == ["Something is said."]
        else:
            assert network.shown("1") == ["Something is being said", "Something is said."]


async def test_resumed_turn_continues_in_its_preview_message(store: Store, network: LoopbackNetwork) -> None:
    async with previewing(store, network) as preview:
        preview.handle_event(TextAdded("The first attempt at a reply"))
        [post] = await network.posted(1)
    left = PostedMessages(HERE, (post.message_id,), live=DEAD)
    await store.write(lambda tx: POSTED_MESSAGES.write(tx, SESSION, left, TURN))
    async with previewing(store, network) as preview:
        preview.handle_event(TextAdded("The second attempt at a reply"))
        await network.until(lambda: network.shown("1") == ["The second attempt at a reply"])
    await finish(store, network, "Done.")
    assert network.shown("1") == ["Done."]


async def test_reply_is_posted_as_a_new_message_when_edits_are_refused(store: Store, network: LoopbackNetwork) -> None:
    network.disrupt(Fault("edit", "refuse", times=0))
    async with previewing(store, network) as preview:
        preview.handle_event(TextAdded("Something is being said"))
        await network.posted(1)
        preview.handle_event(TextAdded(" and more"))
    await finish(store, network, "Something is said.")
    assert network.shown("1")[-1] == "Something is said."


async def test_network_without_edits_gets_tool_lines_and_the_final_text(store: Store) -> None:
    async with network_with(structs.replace(FAST, edits=False)) as network:
        async with previewing(store, network) as preview:
            preview.handle_event(TextAdded("Let me look at that, it may take a little while."))
            preview.handle_event(tool_called(1))
            preview.handle_event(tool_answered(1))
            await network.posted(1)
        await finish(store, network, "Done.")
        assert network.shown("1") == ["✓ `read_file notes 1`", "Done."]


async def test_preview_waits_for_an_earlier_reply_in_the_outbox(store: Store, network: LoopbackNetwork) -> None:
    outbox = OutboxFixture(store)
    await outbox.reply("t0", "The earlier one.")
    async with previewing(store, network) as preview:
        preview.handle_event(TextAdded("The later one is being written down at this moment."))
        await network.until(lambda: [record.kind for record in network.records].count("typing") > 5)
        assert network.posts == []
        async with delivering(store, network.platform()):
            await network.posted(2)
    assert [post.text[:11] for post in network.posts] == ["The earlier", "The later o"]


async def test_ended_turn_has_no_preview(store: Store, network: LoopbackNetwork) -> None:
    await store.write(lambda tx: tx.turns.end(TURN, "answered"))
    async with previewing(store, network) as preview:
        preview.handle_event(TextAdded("x" * 100))
        await network.until(lambda: [record.kind for record in network.records].count("typing") > 5)
    assert network.posts == []


async def test_text_after_a_question_is_posted_in_a_new_message(store: Store, network: LoopbackNetwork) -> None:
    async with previewing(store, network) as preview:
        preview.handle_event(TextAdded("I need to know something first."))
        await network.posted(1)
        preview.handle_event(QuestionAsked("q", "Which one?"))
        preview.handle_event(TextAdded("So it is the second one, as you said just now."))
        await network.posted(2)
    await finish(store, network, "It is the second one.")
    assert network.shown("1") == ["I need to know something first.", "It is the second one."]
    assert [post.key for post in network.posts] == ["t1:1", "t1:2"]


async def test_typing_is_shown_while_a_turn_runs(store: Store, network: LoopbackNetwork) -> None:
    async with previewing(store, network, patience=60):
        await network.until(lambda: [record.kind for record in network.records].count("typing") > 3)


@pytest.mark.parametrize("trouble", ["refuse", "unreachable", "bad_credentials", "disconnect", "hang", "slow_down"])
async def test_network_failure_during_a_preview_does_not_affect_the_turn(
    store: Store, network: LoopbackNetwork, trouble: str
) -> None:
    faults = [Fault(operation, trouble, times=1, seconds=0.01) for operation in ("typing", "post", "edit")]  # type: ignore[arg-type]
    network.disrupt(*faults)
    async with asyncio.timeout(LIMIT), previewing(store, network, call=0.1, final_wait=0.2) as preview:
        preview.handle_event(TextAdded("Something is being said"))
        await network.until(lambda: {fault.operation for fault in network.faults} <= {"edit"})
    network.disrupt()
    await finish(store, network, "Done.")
    assert network.shown("1") == ["Done."]


async def test_final_text_replaces_a_preview_that_was_posted_late(store: Store, network: LoopbackNetwork) -> None:
    network.disrupt(Fault("post", "delay", seconds=0.5))
    async with previewing(store, network, call=0.05) as preview:
        preview.handle_event(TextAdded("Something is being said"))
        await network.until(lambda: not network.faults)
        preview.handle_event(TurnAnswered("Done."))
    await finish(store, network, "Done.")
    assert (network.shown("1"), len(network.posts)) == (["Done."], 1)


async def test_preview_posted_after_the_final_text_is_blanked(store: Store, network: LoopbackNetwork) -> None:
    network.disrupt(Fault("post", "delay", seconds=3))
    async with previewing(store, network, call=0.05, final_wait=2) as preview:
        preview.handle_event(TextAdded("Something is being said"))
        await network.until(lambda: not network.faults)
        preview.handle_event(TurnAnswered("Done."))
        await finish(store, network, "Done.")
    assert sorted(network.shown("1")) == ["Done.", BLANK_TEXT]


async def test_text_before_a_question_is_posted_at_once(store: Store, network: LoopbackNetwork) -> None:
    async with previewing(store, network, patience=3600) as preview:
        preview.handle_event(TextAdded("I ask."))
        preview.handle_event(QuestionAsked("q", "Which one?"))
        await preview.wait_until_flushed()
        assert network.shown("1") == ["I ask."]


async def test_cancelled_preview_releases_its_messages_to_the_final_text(
    store: Store, network: LoopbackNetwork
) -> None:
    options = PreviewOptions(
        store=store, platform=network.platform(), throttle=Throttle(), worker=new_worker_id(), patience=0.01
    )
    preview = Preview(options, SESSION, TURN, ReplyRoute(HERE), Display())
    async with asyncio.TaskGroup() as group:
        task = group.create_task(preview.serve())
        preview.handle_event(TextAdded("Something"))
        await network.posted(1)
        task.cancel()
    shown = await store.read(lambda tx: POSTED_MESSAGES.get(tx, SESSION, TURN))
    assert shown is not None
    assert shown.live == ""


async def test_unrecorded_preview_of_a_dead_worker_becomes_the_final_text(store: Store) -> None:
    """The worker died between posting and recording; the worker that resumes the turn has no more text to show."""
    async with network_with(structs.replace(FAST, idempotent=True)) as network:
        await network.platform().send(HERE, Content(text="… half a word"), "t1:1")
        left = PostedMessages(HERE, ("",), live=DEAD)
        await store.write(lambda tx: POSTED_MESSAGES.write(tx, SESSION, left, TURN))
        async with previewing(store, network, patience=60):
            await until(lambda: store.read(lambda tx: not is_live_at(tx, DEAD)))
        await finish(store, network, "The whole word.")
        assert network.shown("1") == ["The whole word."]


def is_live_at(tx: Transaction, worker: WorkerId) -> bool:
    shown = POSTED_MESSAGES.get(tx, SESSION, TURN)
    return shown is not None and shown.live == worker
