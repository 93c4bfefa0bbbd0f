"""The loopback network: what it takes, what it hands out, and what goes wrong with it on request."""

import asyncio
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec import structs

from talaria.contracts.platform import Attachment, Button, Content, Incoming
from talaria.core.addresses import Address
from talaria.core.errors import BadCredentials, PlatformError, Rejected, SlowDown, Unreachable
from talaria.core.messages import File
from talaria.testing.loopback_platform import (
    CHATTY,
    FarSide,
    Fault,
    LoopbackNetwork,
    LoopbackPlatform,
    LoopbackSettings,
)
from talaria.testing.wait import LIMIT

HERE = Address("loopback", "1")


@pytest.fixture
async def network() -> AsyncIterator[LoopbackNetwork]:
    async with LoopbackNetwork() as network:
        yield network


async def received(platform: LoopbackPlatform, count: int) -> list[Incoming]:
    """Return so many arrivals; the last of them is not confirmed."""
    found: list[Incoming] = []
    async with platform.connect() as arriving:
        async for incoming in arriving:
            found.append(incoming)
            if len(found) == count:
                break
    return found


async def test_what_people_say_arrives_in_order(network: LoopbackNetwork) -> None:
    ids = [network.say("1", f"word {number}") for number in range(5)]
    found = await received(network.platform(), 5)
    assert [one.external_id for one in found] == ids
    assert [one.text for one in found] == [f"word {number}" for number in range(5)]
    assert (found[0].address, found[0].sender.id) == (Address("loopback", "1", user_id="ann"), "ann")


async def test_what_was_not_confirmed_comes_again_and_the_rest_does_not(network: LoopbackNetwork) -> None:
    for number in range(3):
        network.say("1", str(number))
    platform = network.platform()
    assert [one.text for one in await received(platform, 2)] == ["0", "1"]
    assert [one.text for one in await received(platform, 2)] == ["1", "2"]


async def test_a_thing_is_confirmed_when_the_next_is_asked_for(network: LoopbackNetwork) -> None:
    async def speak_on() -> None:
        await network.until(lambda: network.unconfirmed == 0)
        network.say("1", "second")

    async with network.platform().connect() as arriving, asyncio.TaskGroup() as group:
        network.say("1", "first")
        await anext(arriving)
        assert network.unconfirmed == 1
        group.create_task(speak_on())
        assert (await anext(arriving)).text == "second"


async def test_a_message_can_be_delivered_three_times(network: LoopbackNetwork) -> None:
    network.say("0", "before")
    async with network.platform().connect() as arriving:
        await anext(arriving)
        network.say("1", "hi", deliveries=3)
        found = [(await anext(arriving)).external_id for _ in range(3)]
    assert len(set(found)) == 1


async def test_messages_are_posted_edited_and_seen(network: LoopbackNetwork) -> None:
    platform = network.platform()
    ref = await platform.send(HERE, Content(text="hello", buttons=(Button("Yes", "y"),), reply_to="9"), "k")
    await platform.edit(ref, Content(text="hello there"))
    await platform.show_typing(HERE)
    assert network.shown("1") == ["hello there"]
    assert [(one.kind, one.text) for one in network.records] == [
        ("post", "hello"),
        ("edit", "hello there"),
        ("typing", ""),
    ]
    assert (network.records[0].key, network.records[0].reply_to) == ("k", "9")


@pytest.mark.parametrize(("idempotent", "shown"), [(True, ["a"]), (False, ["a", "a"])])
async def test_a_key_posts_once_where_the_network_is_idempotent(idempotent: bool, shown: list[str]) -> None:
    async with LoopbackNetwork(structs.replace(CHATTY, idempotent=idempotent)) as network:
        platform = network.platform()
        first = await platform.send(HERE, Content(text="a"), "k")
        second = await platform.send(HERE, Content(text="a"), "k")
        assert network.shown("1") == shown
        assert (first == second) is idempotent


@pytest.mark.parametrize(
    ("trouble", "error"),
    [
        ("refuse", Rejected),
        ("slow_down", SlowDown),
        ("unreachable", Unreachable),
        ("bad_credentials", BadCredentials),
        ("disconnect", Unreachable),
        ("hang", Unreachable),
    ],
)
async def test_what_goes_wrong_is_an_error_of_its_type_and_once(
    network: LoopbackNetwork, trouble: str, error: type[PlatformError]
) -> None:
    platform = network.platform(patience=1.0 if trouble == "hang" else LIMIT)
    network.disrupt(Fault("post", trouble, seconds=7))  # type: ignore[arg-type]
    with pytest.raises(error) as raised:
        await platform.send(HERE, Content(text="a"), "k")
    if isinstance(raised.value, SlowDown):
        assert raised.value.retry_after == timedelta(seconds=7)
    await platform.send(HERE, Content(text="a"), "k")
    assert network.shown("1") == ["a"]


async def test_an_answer_can_be_lost_after_the_action(network: LoopbackNetwork) -> None:
    network.disrupt(Fault("post", "lose_answer", chat_id="1"))
    platform = network.platform()
    await platform.send(Address("loopback", "2"), Content(text="a"), "k1")
    with pytest.raises(Unreachable):
        await platform.send(HERE, Content(text="a"), "k2")
    assert network.shown("1") == ["a"]


@pytest.mark.parametrize(("text", "unit", "fits"), [("🦊" * 5, "utf16", True), ("🦊" * 6, "utf16", False)])
async def test_a_text_beyond_the_limit_is_refused(text: str, unit: str, fits: bool) -> None:
    async with LoopbackNetwork(structs.replace(CHATTY, text_limit=10, text_unit=unit)) as network:
        if fits:
            await network.platform().send(HERE, Content(text=text), "k")
        else:
            with pytest.raises(Rejected):
                await network.platform().send(HERE, Content(text=text), "k")


async def test_files_go_both_ways(network: LoopbackNetwork, tmp_path: Path) -> None:
    network.say_with_file("1", Attachment("f1", "document", "../../notes.txt"), b"some notes")
    platform = network.platform()
    [incoming] = await received(platform, 1)
    file = await platform.fetch(incoming.attachments[0], tmp_path)
    assert (file.parent, file.read_bytes()) == (tmp_path, b"some notes")
    await platform.send(HERE, Content(files=(File(str(file), "notes.txt"),)), "k")
    assert network.records[0].files == ("notes.txt",)
    with pytest.raises(Rejected):
        await platform.send(HERE, Content(files=(File(str(tmp_path / "none"), "none"),)), "k")


async def test_an_unknown_account_is_rejected() -> None:
    async with LoopbackNetwork(token="right") as network:
        stranger = LoopbackPlatform(LoopbackSettings(address=network.address))
        with pytest.raises(BadCredentials):
            await stranger.send(HERE, Content(text="a"), "k")
        await network.platform().send(HERE, Content(text="a"), "k")


async def test_where_one_may_receive_the_second_is_turned_away() -> None:
    async with LoopbackNetwork(structs.replace(CHATTY, exclusive=True)) as network:
        async with network.platform().connect():
            with pytest.raises(Unreachable):
                async with network.platform().connect():
                    pass
        await network.until(lambda: network.receivers == 0)
        async with network.platform().connect():
            assert network.receivers == 1


async def test_a_connection_that_falls_silent_is_noticed(network: LoopbackNetwork) -> None:
    async with network.platform(patience=2.0).connect() as arriving:
        network.disrupt(Fault("receiving", "hang"))
        with pytest.raises(Unreachable):
            await anext(arriving)


async def test_a_connection_that_is_dropped_is_noticed(network: LoopbackNetwork) -> None:
    async with network.platform().connect() as arriving:
        network.drop()
        with pytest.raises(Unreachable):
            await anext(arriving)


async def test_nobody_answers_where_there_is_no_network(network: LoopbackNetwork) -> None:
    platform = LoopbackPlatform(LoopbackSettings(address="127.0.0.1:1"))
    with pytest.raises(Unreachable):
        await platform.send(HERE, Content(text="a"), "k")


async def test_threads_are_made_where_there_are_threads(network: LoopbackNetwork) -> None:
    assert await network.platform().create_handoff_thread("1", "plans")
    async with LoopbackNetwork(structs.replace(CHATTY, threads=False)) as bare:
        assert await bare.platform().create_handoff_thread("1", "plans") is None


async def test_a_network_of_its_own_process_is_controlled_from_here() -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "talaria.testing.loopback_platform"),
        *("--abilities", '{"text_limit": 100, "edits": true}'),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        address = (await process.stdout.readline()).decode().strip()
        platform = LoopbackPlatform(LoopbackSettings(address=address))
        async with FarSide(address) as far:
            said = await far.say("1", "hello")
            [incoming] = await received(platform, 1)
            assert incoming.external_id == said
            assert await far.unconfirmed() == 1
            await platform.send(HERE, Content(text="hi"), "k")
            assert [record.text for record in await far.look(0, patience=5)] == ["hi"]
            assert await far.look(1) == []
            await far.disrupt(Fault("post", "refuse"))
            with pytest.raises(Rejected):
                await platform.send(HERE, Content(text="hi"), "k")
            await far.drop()
        platform.close()
    finally:
        process.terminate()
        await process.wait()
