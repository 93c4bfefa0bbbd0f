"""A second opinion: the adapter with local-slack, a third-party workspace."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from talaria.contracts.platform import Button, Content, Incoming, MessageRef
from talaria.contracts.store import Store
from talaria.core.addresses import Address
from talaria.core.errors import Rejected
from talaria.core.messages import File
from talaria.gateway.receiver import Receiver
from talaria.platforms.slack.adapter import Slack
from talaria.platforms.slack.settings import SlackSettings
from talaria.testing.local_slack import APP_TOKEN, BOT, CHANNEL, MISSING, TOKEN, LocalSlack, find_local_slack
from talaria.testing.wait import LIMIT, until

if find_local_slack() is None:
    pytest.skip(MISSING, allow_module_level=True)


@pytest.fixture(scope="module")
def workspace() -> Iterator[LocalSlack]:
    with LocalSlack() as there:
        yield there


class QueueingReceiver:
    """Receives every update at once, as a gateway does; this workspace waits for that."""

    def __init__(self, slack: Slack, store: Store) -> None:
        self.received: asyncio.Queue[Incoming] = asyncio.Queue()
        self.receiver = Receiver(slack, store, self._receive, lease=timedelta(seconds=15))

    async def _receive(self, incoming: Incoming) -> str:
        self.received.put_nowait(incoming)
        return ""

    async def next(self) -> Incoming:
        async with asyncio.timeout(LIMIT):
            return await self.received.get()


async def test_messages_edits_files_and_presses_work_with_local_slack(
    workspace: LocalSlack, store: Store, tmp_path: Path
) -> None:
    settings = SlackSettings(token=TOKEN, app_token=APP_TOKEN, base_url=workspace.base_url)
    slack = Slack(settings, [("status", "How things are")])
    queue = QueueingReceiver(slack, store)
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(queue.receiver.serve())
        await wait_until_connected(queue)
        asked = await check_receiving(workspace, queue, f"<@{BOT}> hello")
        await check_sending(slack, workspace, asked, tmp_path)
        await check_choices(slack, workspace, queue, asked)
        serving.cancel()
    await slack.close()


async def wait_until_connected(queue: QueueingReceiver) -> None:
    await until(lambda: queue.receiver.status.state == "connected")


async def check_receiving(workspace: LocalSlack, queue: QueueingReceiver, text: str) -> Incoming:
    await asyncio.to_thread(workspace.act, "message", text=text)
    asked = await queue.next()
    assert (asked.text, asked.sender.name, asked.chat_name) == ("hello", "alice", "general")
    assert asked.address == Address("slack", CHANNEL, "thread", asked.message_id)
    await asyncio.to_thread(workspace.act, "message", text="and more", thread_ts=asked.message_id)
    more = await queue.next()
    assert (more.text, more.addressed, more.address) == ("and more", True, asked.address)
    await asyncio.to_thread(workspace.act, "command", command="/talaria", text="status")
    assert (await queue.next()).text == "/status"
    return asked


async def check_sending(slack: Slack, workspace: LocalSlack, asked: Incoming, folder: Path) -> None:
    source = "**Now**: `x < y` & more\n\n- one\n\n| a | b |\n|---|---|\n| 1 | 2 |"
    ref = await slack.send(asked.address, Content(text=source), "first")
    await slack.edit(ref, Content(text="*Then*."))
    for emoji in ("👀", "✅"):
        await slack.react(MessageRef(asked.address, asked.message_id), emoji)
    path = folder / "a.csv"
    await asyncio.to_thread(path.write_text, "1,2")
    await slack.send(asked.address, Content(text="Here.", files=(File(str(path), "a.csv"),)), "second")
    replies = await read_thread(workspace, asked.message_id)
    assert [one["text"] for one in replies if one.get("text")][-2:] == ["_Then_.", "Here."]
    assert [file["name"] for one in replies for file in one.get("files") or []] == ["a.csv"]
    thread = await slack.create_handoff_thread(CHANNEL, "Trip")
    assert thread
    assert await slack.create_handoff_thread("C0GONE", "Trip") is None
    with pytest.raises(Rejected):
        await slack.edit(MessageRef(asked.address, "1.1"), Content(text="x"))


async def check_choices(slack: Slack, workspace: LocalSlack, queue: QueueingReceiver, asked: Incoming) -> None:
    ref = await slack.send(asked.address, Content(text="May I?", buttons=(Button("Yes", "yes:7"),)), "third")
    action = {"type": "button", "action_id": "talaria-0", "block_id": "b", "value": "yes:7"}
    await asyncio.to_thread(workspace.act, "interact", messageTs=ref.message_id, action=action)
    pressed = await queue.next()
    assert (pressed.button, pressed.message_id, pressed.address) == ("yes:7", ref.message_id, asked.address)
    await asyncio.to_thread(workspace.act, "reaction", ts=ref.message_id, name="tada")
    reacted = await queue.next()
    assert (reacted.reaction, reacted.message_id, reacted.address) == ("🎉", ref.message_id, asked.address)


async def read_thread(workspace: LocalSlack, ts: str) -> list[dict[str, Any]]:
    answer = await asyncio.to_thread(workspace.call, "conversations.replies", channel=CHANNEL, ts=ts)
    messages: list[dict[str, Any]] = answer["messages"]
    return messages
