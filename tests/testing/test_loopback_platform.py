"""The loopback network: messages and files in both directions, and faults on request."""

import asyncio
import contextlib
import socket
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
from talaria.testing.loopback_platform.wire import Login, Post, line
from talaria.testing.wait import LIMIT

CHAT = Address("loopback", "1")


@pytest.fixture
async def network() -> AsyncIterator[LoopbackNetwork]:
    async with LoopbackNetwork() as network:
        yield network


async def receive(platform: LoopbackPlatform, count: int) -> list[Incoming]:
    """Return this many updates; the last one is not confirmed."""
    found: list[Incoming] = []
    async with platform.connect() as arriving:
        async for incoming in arriving:
            found.append(incoming)
            if len(found) == count:
                break
    return found


async def test_messages_are_received_in_order(network: LoopbackNetwork) -> None:
    ids = [network.say("1", f"word {number}") for number in range(5)]
    found = await receive(network.platform(), 5)
    assert [one.external_id for one in found] == ids
    assert [one.text for one in found] == [f"word {number}" for number in range(5)]
    assert (found[0].address, found[0].sender.id) == (Address("loopback", "1", user_id="ann"), "ann")


async def test_only_unconfirmed_messages_are_delivered_again(network: LoopbackNetwork) -> None:
    for number in range(3):
        network.say("1", str(number))
    platform = network.platform()
    assert [one.text for one in await receive(platform, 2)] == ["0", "1"]
    assert [one.text for one in await receive(platform, 2)] == ["1", "2"]


async def test_update_is_confirmed_when_the_next_one_is_requested(network: LoopbackNetwork) -> None:
    async def send_second() -> None:
        await network.until(lambda: network.unconfirmed == 0)
        network.say("1", "second")

    async with network.platform().connect() as arriving, asyncio.TaskGroup() as group:
        network.say("1", "first")
        await anext(arriving)
        assert network.unconfirmed == 1
        group.create_task(send_second())
        assert (await anext(arriving)).text == "second"


async def test_a_message_can_be_delivered_three_times(network: LoopbackNetwork) -> None:
    network.say("0", "before")
    async with network.platform().connect() as arriving:
        await anext(arriving)
        network.say("1", "hi", deliveries=3)
        found = [(await anext(arriving)).external_id for _ in range(3)]
    assert len(set(found)) == 1


async def test_messages_are_posted_edited_and_recorded(network: LoopbackNetwork) -> None:
    platform = network.platform()
    ref = await platform.send(CHAT, Content(text="hello", buttons=(Button("Yes", "y"),), reply_to="9"), "k")
    await platform.edit(ref, Content(text="hello there"))
    await platform.show_typing(CHAT)
    assert network.shown("1") == ["hello there"]
    assert [(one.kind, one.text) for one in network.records] == [
        ("post", "hello"),
        ("edit", "hello there"),
        ("typing", ""),
    ]
    assert (network.records[0].key, network.records[0].reply_to) == ("k", "9")


@pytest.mark.parametrize(("idempotent", "shown"), [(True, ["a"]), (False, ["a", "a"])])
async def test_idempotent_network_posts_once_per_key(idempotent: bool, shown: list[str]) -> None:
    async with LoopbackNetwork(structs.replace(CHATTY, idempotent=idempotent)) as network:
        platform = network.platform()
        first = await platform.send(CHAT, Content(text="a"), "k")
        second = await platform.send(CHAT, Content(text="a"), "k")
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
async def test_each_fault_raises_its_error_once(
    network: LoopbackNetwork, trouble: str, error: type[PlatformError]
) -> None:
    platform = network.platform(patience=1.0 if trouble == "hang" else LIMIT)
    network.disrupt(Fault("post", trouble, seconds=7))  # type: ignore[arg-type]
    with pytest.raises(error) as raised:
        await platform.send(CHAT, Content(text="a"), "k")
    if isinstance(raised.value, SlowDown):
        assert raised.value.retry_after == timedelta(seconds=7)
    await platform.send(CHAT, Content(text="a"), "k")
    assert network.shown("1") == ["a"]


async def test_an_answer_can_be_lost_after_the_action(network: LoopbackNetwork) -> None:
    network.disrupt(Fault("post", "lose_answer", chat_id="1"))
    platform = network.platform()
    await platform.send(Address("loopback", "2"), Content(text="a"), "k1")
    with pytest.raises(Unreachable):
        await platform.send(CHAT, Content(text="a"), "k2")
    assert network.shown("1") == ["a"]


@pytest.mark.parametrize(("text", "unit", "fits"), [("🦊" * 5, "utf16", True), ("🦊" * 6, "utf16", False)])
async def test_a_text_beyond_the_limit_is_refused(text: str, unit: str, fits: bool) -> None:
    async with LoopbackNetwork(structs.replace(CHATTY, text_limit=10, text_unit=unit)) as network:
        if fits:
            await network.platform().send(CHAT, Content(text=text), "k")
        else:
            with pytest.raises(Rejected):
                await network.platform().send(CHAT, Content(text=text), "k")


async def test_files_are_sent_and_received(network: LoopbackNetwork, tmp_path: Path) -> None:
    network.say_with_file("1", Attachment("f1", "document", "../../notes.txt"), b"some notes")
    platform = network.platform()
    [incoming] = await receive(platform, 1)
    file = await platform.fetch(incoming.attachments[0], tmp_path)
    assert (file.parent, file.read_bytes()) == (tmp_path, b"some notes")
    await platform.send(CHAT, Content(files=(File(str(file), "notes.txt"),)), "k")
    assert network.records[0].files == ("notes.txt",)
    with pytest.raises(Rejected):
        await platform.send(CHAT, Content(files=(File(str(tmp_path / "none"), "none"),)), "k")


async def test_an_unknown_account_is_rejected() -> None:
    async with LoopbackNetwork(token="right") as network:
        stranger = LoopbackPlatform(LoopbackSettings(address=network.address))
        with pytest.raises(BadCredentials):
            await stranger.send(CHAT, Content(text="a"), "k")
        await network.platform().send(CHAT, Content(text="a"), "k")


async def test_second_receiver_of_an_exclusive_network_is_refused() -> None:
    async with LoopbackNetwork(structs.replace(CHATTY, exclusive=True)) as network:
        async with network.platform().connect():
            with pytest.raises(Unreachable):
                async with network.platform().connect():
                    pass
        await network.until(lambda: network.receivers == 0)
        async with network.platform().connect():
            assert network.receivers == 1


async def test_silent_connection_is_reported_as_unreachable(network: LoopbackNetwork) -> None:
    async with network.platform(patience=2.0).connect() as arriving:
        network.disrupt(Fault("receiving", "hang"))
        with pytest.raises(Unreachable):
            await anext(arriving)


async def test_dropped_connection_is_reported_as_unreachable(network: LoopbackNetwork) -> None:
    async with network.platform().connect() as arriving:
        network.drop()
        with pytest.raises(Unreachable):
            await anext(arriving)


@pytest.mark.parametrize("rounds", range(6))
async def test_connection_from_just_before_the_end_is_not_served(rounds: int) -> None:
    with socket.socket() as client:
        async with LoopbackNetwork() as network:
            host, _, port = network.address.partition(":")
            client.connect((host, int(port)))
            for _ in range(rounds):  # the network gets one step further with accepting it
                await asyncio.sleep(0)
        with contextlib.suppress(ConnectionError):
            client.sendall(line(Login("")) + line(Post(address=CHAT, key="k", text="late")))
        for _ in range(50):  # more than a served connection needs
            await asyncio.sleep(0)
        assert not network.records


async def test_missing_network_is_reported_as_unreachable(network: LoopbackNetwork) -> None:
    platform = LoopbackPlatform(LoopbackSettings(address="127.0.0.1:1"))
    with pytest.raises(Unreachable):
        await platform.send(CHAT, Content(text="a"), "k")


async def test_thread_is_created_only_if_the_network_has_threads(network: LoopbackNetwork) -> None:
    assert await network.platform().create_handoff_thread("1", "plans")
    async with LoopbackNetwork(structs.replace(CHATTY, threads=False)) as bare:
        assert await bare.platform().create_handoff_thread("1", "plans") is None


async def test_network_in_another_process_can_be_controlled() -> None:
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
            message_id = await far.say("1", "hello")
            [incoming] = await receive(platform, 1)
            assert incoming.external_id == message_id
            assert await far.unconfirmed() == 1
            await platform.send(CHAT, Content(text="hi"), "k")
            assert [record.text for record in await far.read_records(0, patience=5)] == ["hi"]
            assert await far.read_records(1) == []
            await far.disrupt(Fault("post", "refuse"))
            with pytest.raises(Rejected):
                await platform.send(CHAT, Content(text="hi"), "k")
            await far.drop()
        platform.close()
    finally:
        process.terminate()
        await process.wait()
