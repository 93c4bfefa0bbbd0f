"""The turn of BOOT.md, and where its reply is sent."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.commands.command_fixture import ChatClient, open_chat_client

from talaria.contracts.stores.sessions import SessionFilter
from talaria.core.addresses import Address
from talaria.hooks.boot import Boot, read_boot
from talaria.sessions.chat_directory import HomeChat, write_home
from talaria.testing.model_server import Ask, ModelServer, Say, overloaded

NETWORKS = ("matrix", "telegram")


@pytest.fixture
async def client(tmp_path: Path, server: ModelServer) -> AsyncIterator[ChatClient]:
    async with open_chat_client(tmp_path, server, "[agent]\nmax_turn_seconds = 2\n") as client:
        await client.application.store.write(lambda tx: write_home(tx, HomeChat(Address("matrix", "!home"))))
        yield client


def boot(client: ChatClient) -> Boot:
    return Boot(client.application, client.active_session.request.surface.folder, NETWORKS, client.active_session.jobs)


async def queued(client: ChatClient) -> list[tuple[str, str]]:
    pending = await client.application.store.read(lambda tx: tx.outbox.find())
    return [(one.address.chat_id, one.payload) for one in pending]


async def test_reply_to_boot_md_is_sent_to_the_home_chat(client: ChatClient, server: ModelServer) -> None:
    server.script(Say(calls=[Ask("list_files", {})]), Say("All is well."))
    assert await boot(client).run("Look whether all is well.")
    (notice,) = await queued(client)
    assert notice == ("!home", '{"text":"All is well."}')
    (session,) = await client.application.store.read(lambda tx: tx.sessions.find(SessionFilter(source="boot", limit=5)))
    assert (session.owner, session.audience) == ("", "")
    assert "Look whether all is well." in server.received[0].question


@pytest.mark.parametrize("reply", ["[SILENT]", " [SILENT] nothing of note", "", " \n"])
async def test_silent_or_empty_boot_reply_is_not_sent(client: ChatClient, server: ModelServer, reply: str) -> None:
    server.script(Say(reply))
    assert not await boot(client).run("Look whether all is well.")
    assert await queued(client) == []


async def test_failed_boot_turn_is_not_posted(client: ChatClient, server: ModelServer) -> None:
    server.script(*[overloaded()] * 20)
    assert not await boot(client).run("Look whether all is well.")
    assert await queued(client) == []


@pytest.mark.slow
async def test_call_that_needs_approval_is_refused_in_a_boot_turn(
    client: ChatClient, server: ModelServer, tmp_path: Path
) -> None:
    server.script(Say(calls=[Ask("terminal", {"command": "echo true | sh && touch done"})]), Say("I may not."))
    assert await boot(client).run("Clean up.")
    assert not (tmp_path / "work" / "done").exists()


async def test_cancelled_boot_turn_leaves_no_running_turn(client: ChatClient, server: ModelServer) -> None:
    server.script(Say("slow " * 1000, pause=0.1))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(boot(client).run("Take your time."))
        await server.arrived(1)
        task.cancel()
    assert await client.application.store.read(lambda tx: tx.turns.find(running=True)) == []


def test_missing_or_empty_boot_md_reads_as_empty(tmp_path: Path) -> None:
    assert read_boot(tmp_path) == ""
    (tmp_path / "BOOT.md").write_text(" \n")
    assert read_boot(tmp_path) == ""
    (tmp_path / "BOOT.md").write_text("# At the start\n\nSay hello.\n")
    assert read_boot(tmp_path) == "# At the start\n\nSay hello."
