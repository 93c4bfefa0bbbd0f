"""A full disk: the gateway stays up and reports it, and everything is answered once there is space."""

import asyncio
import errno
import os
import resource
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.system.outage_fixture import STORE_NOTICE, OutageFixture

from talaria.testing.loopback_platform import LoopbackNetwork
from talaria.testing.model_server import ModelServer, Say
from talaria.testing.model_server.exchange import Received

SIZE, TINY = 64 * 1024 * 1024, 4 * 1024 * 1024
FREE = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)


@pytest.fixture
async def network() -> AsyncIterator[LoopbackNetwork]:
    async with LoopbackNetwork() as network:
        yield network


@pytest.fixture
def small_disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A separate file system that is soon full; a parameter sets its size in bytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    size = getattr(request, "param", SIZE)
    mounting = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "talaria", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mounting, check=False, capture_output=True).returncode:
        pytest.skip("only root may mount a small file system, where that is allowed at all")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


class Ballast:
    """A file that takes all the space there is, until it is dropped."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "ballast"

    def fill(self) -> None:
        with self._file.open("ab", buffering=0) as file:
            for size in (65536, 4096, 1):
                try:
                    while True:
                        file.write(b"\0" * size)
                except OSError as error:
                    assert error.errno == errno.ENOSPC  # noqa: PT017 (it is meant to fail)

    def drop(self) -> None:
        self._file.unlink()


async def test_full_disk_is_reported_and_messages_are_answered_when_space_is_freed(
    small_disk: Path, server: ModelServer, network: LoopbackNetwork
) -> None:
    outage, ballast = OutageFixture(small_disk, server, network), Ballast(small_disk)
    outage.write_settings()
    async with outage.running():
        await outage.send_and_wait("ann", "one")
        address = (await outage.status())["address"]
        ballast.fill()
        for text in ("two", "three", "four"):
            network.say("ann", text)
        await outage.until_status(
            lambda status: "disk is full" in status["error"] and status["networks"][0]["state"] == "connected"
        )
        assert "disk is full" in (await outage.run("gateway", "status")).out
        assert (await outage.get(address, "/health"))[0] == 200
        code, reasons = await outage.get(address, "/ready")
        assert (code, "disk is full" in reasons) == (503, True)
        assert "talaria_store_up 0\n" in (await outage.get(address, "/metrics"))[1]
        await outage.wait_for_text("ann", STORE_NOTICE)
        ballast.drop()
        await outage.shown("ann", "re: one", STORE_NOTICE, "re: two", "re: three", "re: four")
        await outage.until_status(lambda status: not status["error"])
        assert (await outage.get(address, "/ready"))[0] == 200
    outage.check_log()


async def test_answer_of_a_turn_is_delivered_when_space_on_a_full_disk_is_freed(
    small_disk: Path, server: ModelServer, network: LoopbackNetwork
) -> None:
    outage, ballast = OutageFixture(small_disk, server, network), Ballast(small_disk)
    outage.write_settings()
    asked, go = asyncio.Event(), asyncio.Event()

    async def answer(received: Received) -> Say:
        if received.question == "think":
            asked.set()
            await go.wait()
        return Say(f"re: {received.question}")

    server.answering(answer)
    async with outage.running():
        network.say("ann", "think")
        await asked.wait()
        ballast.fill()
        go.set()
        await outage.wait_for_text("ann", STORE_NOTICE)
        ballast.drop()
        await outage.shown("ann", STORE_NOTICE, "re: think")
    assert [call.question for call in server.received].count("think") == 1
    outage.check_log()


@pytest.mark.parametrize("small_disk", [TINY], indirect=True)
async def test_tiny_disk_holds_the_log_of_many_turns_and_recovers_when_space_is_freed(
    small_disk: Path, server: ModelServer, network: LoopbackNetwork
) -> None:
    outage, ballast = OutageFixture(small_disk, server, network), Ballast(small_disk)
    outage.write_settings()
    chats = [f"chat {number}" for number in range(8)]

    def all_answered(upto: int) -> bool:
        return all(set(network.shown(chat)) >= {f"re: {chat} {n}" for n in range(upto)} for chat in chats)

    async with outage.running():
        await outage.send_and_wait("ann", "one")
        for number in range(12):
            for chat in chats:
                network.say(chat, f"{chat} {number}", sender=chat)
            if number == 3:
                await network.until(lambda: all_answered(4))
                ballast.fill()
            if number == 5:
                await outage.until_status(lambda status: "disk is full" in status["error"])
                ballast.drop()
        await network.until(lambda: all_answered(12))
        await outage.until_status(lambda status: not status["error"])
    outage.check_log()


async def test_file_size_limit_is_reported_and_messages_are_answered_when_it_is_lifted(
    tmp_path: Path, server: ModelServer, network: LoopbackNetwork
) -> None:
    outage = OutageFixture(tmp_path, server, network)
    outage.write_settings()
    async with outage.running() as process:
        await outage.send_and_wait("ann", "one")
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1024, resource.RLIM_INFINITY))
        for text in ("two", "three"):
            network.say("ann", text)
        await outage.until_status(lambda status: bool(status["error"]))
        await outage.wait_for_text("ann", STORE_NOTICE)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, FREE)
        await outage.shown("ann", "re: one", STORE_NOTICE, "re: two", "re: three")
        await outage.until_status(lambda status: not status["error"])
    outage.check_log()
