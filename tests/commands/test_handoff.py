"""`/handoff` in the terminal, with a gateway as a second process on the same store."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from tests.commands.command_fixture import ChatClient, open_chat_client

from talaria.commands.handoff import HandoffCommand
from talaria.commands.registry import REGISTRY
from talaria.contracts.store import Store, Transaction
from talaria.core.addresses import Address
from talaria.core.errors import Busy
from talaria.core.ids import SessionId
from talaria.runtime.workers import is_gateway_alive
from talaria.sessions.chat_directory import GATEWAY, HomeChat, read_home, write_home
from talaria.settings.sections.chats import BUILT_IN_PLATFORMS
from talaria.storage.sqlite.store import open_sqlite_store
from talaria.testing.model_server import ModelServer, Say
from talaria.testing.wait import until

_GATEWAY_PROCESS = """
import asyncio, sys
from datetime import timedelta
from pathlib import Path
from talaria.storage.sqlite.store import open_sqlite_store

async def main():
    store = open_sqlite_store(Path(sys.argv[1]))
    await store.write(lambda tx: tx.leases.acquire(sys.argv[2], timedelta(hours=1)))
    print("held", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""
TOKEN = "TELEGRAM_BOT_TOKEN=123456:abcdefghijklmnop\n"
HOME = HomeChat(Address("telegram", "77", "group"), "Family")
THREAD = Address("telegram", "77", "thread", "5")
SECONDS = timedelta(seconds=1)


@asynccontextmanager
async def _gateway(home: Path) -> AsyncIterator[Store]:
    """Open the store once more, as the process of a running gateway does."""
    store = open_sqlite_store(home / "home/profiles/default/talaria.db")
    try:
        lease = await store.write(lambda tx: tx.leases.acquire(GATEWAY, timedelta(minutes=1)))
        assert lease is not None
        yield store
        await store.write(lambda tx: tx.leases.release(lease))
    finally:
        await store.close()


async def _wait_and_claim(store: Store) -> SessionId:
    """Wait for a request and claim it."""
    return await until(lambda: store.write(_claim))


def _claim(tx: Transaction) -> SessionId | None:
    pending = tx.handoffs.list_pending_handoffs()
    return pending[0].session_id if pending and tx.handoffs.claim_handoff(pending[0].session_id) else None


async def _prepare(client: ChatClient) -> None:
    await client.say("hi")
    await client.use("/title Trip")
    await client.application.store.write(lambda tx: write_home(tx, HOME))


def _set_patience(client: ChatClient, patience: timedelta, remark: timedelta = 10 * SECONDS) -> None:
    own = HandoffCommand(patience=patience, pause=timedelta(milliseconds=10), remark=remark).command
    client.commands = tuple(own if one.name == "handoff" else one for one in REGISTRY)


async def test_each_refusal_names_its_reason_and_the_next_step(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server, secrets=TOKEN) as client:
        server.script(Say("one two three", pause=30))
        await client.active_session.put()
        await server.arrived()
        networks = ", ".join(name for name, network in BUILT_IN_PLATFORMS.items() if network.secrets)
        assert await client.use("/handoff") == f"Where to? Use `/handoff <platform>` with one of {networks}, web."
        assert await client.use("/handoff pigeon") == f"There is no platform `pigeon`. Available: {networks}, web."
        assert "`talaria setup chat`" in await client.use("/handoff discord")
        assert "`/sethome`" in await client.use("/handoff Telegram")
        await client.application.store.write(lambda tx: write_home(tx, HOME))
        assert "`/stop`" in await client.use("/handoff telegram")
        await client.use("/stop")
        await client.active_session.chat.conversation.wait_until_idle()
        assert "Start one with `talaria gateway start`" in await client.use("/handoff telegram")
        here = client.active_session.session_id
        state = await client.application.store.read(lambda tx: tx.handoffs.get_handoff_state(here))
        assert state == {"state": None, "platform": None, "error": None}
        assert client.screen is not None
        assert not client.screen.left


async def test_completed_handoff_shows_the_target_and_ends_the_program(tmp_path: Path) -> None:
    async with (
        ModelServer() as server,
        open_chat_client(tmp_path, server, secrets=TOKEN) as client,
        _gateway(tmp_path) as other,
    ):
        await _prepare(client)
        async with asyncio.TaskGroup() as group:
            using = group.create_task(client.use("/handoff telegram"))
            session_id = await _wait_and_claim(other)
            await client.surface.wait_for_text("is moving it")

            def complete(tx: Transaction) -> None:
                tx.bindings.bind("telegram:77:5", session_id, THREAD)
                assert tx.handoffs.complete_handoff(session_id)

            await other.write(complete)
        assert session_id == client.active_session.session_id
        assert using.result().endswith(
            f"This conversation has moved to Telegram, Family (in its own thread).\n\nTo come back, run"
            f" `talaria chat -r {session_id}` in a shell, or send `/resume {session_id}` in a chat."
        )
        assert client.screen is not None
        assert client.screen.left


async def test_failed_handoff_shows_the_reason_and_the_session_continues(tmp_path: Path) -> None:
    async with (
        ModelServer() as server,
        open_chat_client(tmp_path, server, secrets=TOKEN) as client,
        _gateway(tmp_path) as other,
    ):
        await _prepare(client)
        async with asyncio.TaskGroup() as group:
            using = group.create_task(client.use("/handoff telegram"))
            session_id = await _wait_and_claim(other)
            await other.write(lambda tx: tx.handoffs.fail_handoff(session_id, "the bot is not in that chat"))
        assert using.result().endswith("The conversation stays here: the bot is not in that chat.")
        assert client.screen is not None
        assert not client.screen.left
        await client.say("still here")


@pytest.mark.parametrize("claimed", [False, True])
async def test_handoff_that_is_not_finished_in_time_is_withdrawn(tmp_path: Path, claimed: bool) -> None:
    async with (
        ModelServer() as server,
        open_chat_client(tmp_path, server, secrets=TOKEN) as client,
        _gateway(tmp_path) as other,
    ):
        await _prepare(client)
        _set_patience(client, 0.4 * SECONDS, remark=0.1 * SECONDS)
        async with asyncio.TaskGroup() as group:
            using = group.create_task(client.use("/handoff telegram"))
            if claimed:
                await _wait_and_claim(other)
        shown = using.result()
        assert "Still waiting" in shown
        assert shown.endswith("The conversation stays here: no gateway finished it within 0.4 s.")
        here = client.active_session.session_id
        assert await other.read(lambda tx: tx.handoffs.list_pending_handoffs()) == []
        assert not await other.write(lambda tx: tx.handoffs.complete_handoff(here))
        assert client.screen is not None
        assert not client.screen.left


async def test_handoff_completed_just_before_the_timeout_counts(tmp_path: Path) -> None:
    """The handoff is completed after the last poll and before the timeout."""
    async with (
        ModelServer() as server,
        open_chat_client(tmp_path, server, secrets=TOKEN) as client,
        _gateway(tmp_path) as other,
    ):
        await _prepare(client)
        rarely = HandoffCommand(patience=0.1 * SECONDS, pause=4 * SECONDS).command
        client.commands = tuple(rarely if one.name == "handoff" else one for one in REGISTRY)
        async with asyncio.TaskGroup() as group:
            using = group.create_task(client.use("/handoff telegram"))
            session_id = await _wait_and_claim(other)
            assert await other.write(lambda tx: tx.handoffs.complete_handoff(session_id))
        assert "This conversation has moved to Telegram" in using.result()
        state = await other.read(lambda tx: tx.handoffs.get_handoff_state(session_id))
        assert state == {"state": "completed", "platform": "telegram", "error": None}
        assert client.screen is not None
        assert client.screen.left


async def test_cancelling_the_wait_withdraws_the_request(tmp_path: Path) -> None:
    async with (
        ModelServer() as server,
        open_chat_client(tmp_path, server, secrets=TOKEN) as client,
        _gateway(tmp_path) as other,
    ):
        await _prepare(client)
        async with asyncio.TaskGroup() as group:
            using = group.create_task(client.use("/handoff telegram"))
            await client.surface.wait_for_text("Handing off")
            using.cancel()
        assert await other.read(lambda tx: tx.handoffs.list_pending_handoffs()) == []
        await until(lambda: not client.active_session.busy)  # it looks for messages that arrived meanwhile
        here = client.active_session.session_id
        assert await client.application.store.write(lambda tx: tx.handoffs.request_handoff(here, "telegram"))
        assert "already being handed off" in await client.use("/handoff telegram")


@pytest.mark.parametrize("claimed", [False, True])
async def test_cancel_withdraws_the_request(tmp_path: Path, claimed: bool) -> None:
    async with (
        ModelServer() as server,
        open_chat_client(tmp_path, server, secrets=TOKEN) as client,
        _gateway(tmp_path) as other,
    ):
        await _prepare(client)
        assert await client.use("/handoff cancel") == "There is no handoff to cancel."
        async with asyncio.TaskGroup() as group:
            using = group.create_task(client.use("/handoff telegram"))
            await client.surface.wait_for_text("Handing off")
            if claimed:
                await _wait_and_claim(other)
            status = await client.use("/status")
            state = "being moved" if claimed else "waiting for the gateway"
            assert f"- Handoff: to Telegram, {state} (`/handoff cancel` cancels it)" in status
            await client.use("/handoff cancel")
        assert using.result().endswith("The conversation stays here: you cancelled it.")
        assert "Handoff:" not in await client.use("/status")
        here = client.active_session.session_id
        assert not await other.write(lambda tx: tx.handoffs.claim_handoff(here))
        assert not await other.write(lambda tx: tx.handoffs.complete_handoff(here))
        assert client.screen is not None
        assert not client.screen.left
        await client.say("still here")


async def test_message_sent_during_a_handoff_waits_for_the_chat(tmp_path: Path) -> None:
    async with (
        ModelServer() as server,
        open_chat_client(tmp_path, server, secrets=TOKEN) as client,
        _gateway(tmp_path) as other,
    ):
        await _prepare(client)
        before = len(server.received)
        async with asyncio.TaskGroup() as group:
            using = group.create_task(client.use("/handoff telegram"))
            await client.surface.wait_for_text("Handing off")
            with pytest.raises(Busy, match=r"handed off to Telegram\. I'll answer there"):
                await client.say("and the oars?")
            session_id = await _wait_and_claim(other)

            def complete(tx: Transaction) -> None:
                assert tx.handoffs.complete_handoff(session_id)
                tx.bindings.bind("telegram:77:5", session_id, THREAD)

            await other.write(complete)
        assert "has moved to Telegram" in using.result()
        (item,) = await other.read(lambda tx: tx.inbox.list_unsettled(session_id))
        assert (item.state, "and the oars?" in item.payload) == ("waiting", True)
        assert len(server.received) == before


async def test_message_sent_during_a_cancelled_handoff_is_answered_in_the_terminal(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server, secrets=TOKEN) as client, _gateway(tmp_path):
        await _prepare(client)
        server.answering(lambda received: Say(f"re: {received.question}"))
        async with asyncio.TaskGroup() as group:
            group.create_task(client.use("/handoff telegram"))
            await client.surface.wait_for_text("Handing off")
            with pytest.raises(Busy):
                await client.say("and the oars?")
            await client.use("/handoff cancel")
        await client.active_session.chat.conversation.wait_until_idle()
        here = client.active_session.session_id
        texts = await client.application.store.read(lambda tx: [one.message.text for one in tx.messages.load(here)])
        assert texts[-2:] == ["and the oars?", "re: and the oars?"]


async def test_resuming_a_session_withdraws_its_abandoned_handoff(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server, secrets=TOKEN) as client:
        await _prepare(client)
        here = client.active_session.session_id
        await client.use("/new")
        assert await client.application.store.write(lambda tx: tx.handoffs.request_handoff(here, "telegram"))
        await client.use(f"/resume {here}")
        state = await client.application.store.read(lambda tx: tx.handoffs.get_handoff_state(here))
        assert state is not None
        assert state["state"] == "failed"
        await client.say("still here")


async def test_refusal_for_slack_names_the_slash_command_of_slack(tmp_path: Path) -> None:
    secrets = "SLACK_BOT_TOKEN=xoxb-1\nSLACK_APP_TOKEN=xapp-1\n"
    async with ModelServer() as server, open_chat_client(tmp_path, server, secrets=secrets) as client:
        assert await client.use("/handoff slack") == (
            "Slack has no home chat yet. Send `/talaria sethome` in the chat you want to use."
        )


async def test_completions_of_handoff_contain_only_configured_platforms(tmp_path: Path) -> None:
    secrets = TOKEN + "SLACK_BOT_TOKEN=xoxb-1\n"
    async with ModelServer() as server, open_chat_client(tmp_path, server, secrets=secrets) as client:
        networks = {name: name == "telegram" for name, network in BUILT_IN_PLATFORMS.items() if network.secrets}
        assert client.application.platforms == {**networks, "web": True}
        at_once = ("--now", "move now, in the middle of the turn")
        cancel = ("cancel", "cancel the handoff")
        assert await client.offers("/handoff") == [("telegram", "configured"), ("web", "configured"), at_once, cancel]
        assert await client.offers("/handoff", "--now ") == [
            ("--now telegram", "configured"),
            ("--now web", "configured"),
        ]


async def test_sethome_stores_the_address_of_the_chat(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server, chat=HOME.address) as client:
        assert "home chat on Telegram" in await client.use("/sethome Family")
        assert await client.application.store.read(lambda tx: read_home(tx, "telegram")) == HOME
        await client.use("/sethome")
        unnamed = await client.application.store.read(lambda tx: read_home(tx, "telegram"))
        assert unnamed is not None
        assert unnamed.name == ""
        assert await client.application.store.read(lambda tx: read_home(tx, "discord")) is None


async def test_killed_gateway_is_not_reported_as_alive(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        assert not await client.application.store.read(is_gateway_alive)
        file = tmp_path / "home/profiles/default/talaria.db"
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _GATEWAY_PROCESS, str(file), GATEWAY, stdout=asyncio.subprocess.PIPE
        )
        assert child.stdout is not None
        assert await child.stdout.readline() == b"held\n"
        assert await client.application.store.read(is_gateway_alive)
        child.kill()
        await child.wait()
        assert not await client.application.store.read(is_gateway_alive)
