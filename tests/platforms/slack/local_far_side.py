"""The far side of Slack for the contract suite with local-slack, a third-party workspace."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import unescape
from typing import Any

import aiohttp
from tests.platforms.slack.far_side import QUICK

from talaria.core.addresses import Address
from talaria.core.ids import new_id
from talaria.platforms.slack.adapter import Slack
from talaria.platforms.slack.incoming import emoji_for, names_for
from talaria.platforms.slack.settings import SlackSettings
from talaria.testing.local_slack import ALICE, APP_TOKEN, BOT, TOKEN, LocalSlack
from talaria.testing.platform_suite import FailureKind, VisibleMessage
from talaria.testing.slack_server.methods import choices_of


class LocalFarSide:
    """Alice, her chat with the app, a channel that is new for each test, and a thread in it."""

    def __init__(self, workspace: LocalSlack, platform: Slack, http: aiohttp.ClientSession) -> None:
        self.platform = platform
        self.secret = TOKEN
        self._actions: asyncio.Queue[tuple[str, dict[str, object]]] = asyncio.Queue()
        self._workspace = workspace
        self._http = http
        chat = workspace.call("conversations.open", users=ALICE)["channel"]["id"]
        channel = workspace.call("conversations.create", name=f"c{new_id()}".lower())["channel"]["id"]
        workspace.call("conversations.invite", channel=channel, users=ALICE)
        root = workspace.act("message", channel=channel, text="Plans")["message"]["ts"]
        before = workspace.call("conversations.history", channel=chat)["messages"]
        self._known = {one["ts"] for one in before}
        self.private = Address("slack", chat)
        self.group: Address | None = Address("slack", channel, "group")
        self.thread: Address | None = Address("slack", channel, "thread", root)
        self.nowhere = Address("slack", "C0NOWHERE", "group")

    async def says(self, at: Address, text: str, *, addressed: bool = True) -> None:
        mention = f"<@{BOT}> " if addressed and at.chat_type != "private" else ""
        thread = {"thread_ts": at.thread_id} if at.thread_id else {}
        self._act("message", channel=at.chat_id, text=mention + text, **thread)

    async def sends_file(self, at: Address, name: str, data: bytes) -> None:
        raise NotImplementedError("here a person sends files in a way of this workspace's own")

    async def presses(self, at: Address, message_id: str, label: str) -> None:
        message = next(one for one in await self._messages(at) if one["ts"] == message_id)
        action = {**dict(choices_of(message["blocks"]))[label], "block_id": "b"}
        self._act("interact", channel=at.chat_id, messageTs=message_id, action=action)

    async def reacts(self, at: Address, message_id: str, emoji: str) -> None:
        self._act("reaction", channel=at.chat_id, ts=message_id, name=names_for(emoji)[0])

    async def own_reactions(self, at: Address, message_id: str) -> list[str]:
        message = next(one for one in await self._messages(at) if one["ts"] == message_id)
        return [emoji_for(one["name"]) for one in message.get("reactions") or [] if BOT in one["users"]]

    async def redelivers(self) -> bool:
        return False

    async def seen(self, at: Address) -> list[VisibleMessage]:
        ours = [one for one in await self._messages(at) if one.get("user") == BOT or one.get("bot_id")]
        return [_seen(one) for one in ours if one.get("thread_ts", "") in ("", at.thread_id)]

    async def disrupt(self, failure: FailureKind) -> bool:
        return False

    async def calm(self) -> None:
        """Do nothing: this workspace can't be disrupted."""

    async def _messages(self, at: Address) -> list[dict[str, Any]]:
        method, arguments = "conversations.history", {"channel": at.chat_id}
        if at.thread_id:
            method, arguments = "conversations.replies", {**arguments, "ts": at.thread_id}
        answer = await asyncio.to_thread(self._workspace.call, method, **arguments)
        found = [one for one in answer["messages"] if one["ts"] not in self._known and one["ts"] != at.thread_id]
        return sorted(found, key=lambda one: float(one["ts"]))

    def _act(self, proposed_action: str, **details: object) -> None:
        self._actions.put_nowait((proposed_action, {"user": ALICE, **details}))

    async def act(self) -> None:
        """Perform Alice's actions in order; each ends when the app has acknowledged it, or after a timeout."""
        while True:
            proposed_action, details = await self._actions.get()
            async with self._http.post(f"{self._workspace.url}/_control/{proposed_action}", json=details) as answer:
                assert answer.ok, await answer.text()


def _seen(message: dict[str, Any]) -> VisibleMessage:
    return VisibleMessage(
        message_id=message["ts"],
        text=unescape(message.get("text", "")),
        reply_to=((message.get("metadata") or {}).get("event_payload") or {}).get("reply_to", ""),
        buttons=tuple(label for label, _ in choices_of(message.get("blocks") or [])),
        files=tuple(one["name"] for one in message.get("files") or []),
    )


@asynccontextmanager
async def local_far_side(workspace: LocalSlack) -> AsyncIterator[LocalFarSide]:
    """Open the chats and the adapter in a running workspace."""
    settings = SlackSettings(
        token=TOKEN,
        app_token=APP_TOKEN,
        base_url=workspace.base_url,
        channel_replies="channel",
        patience=QUICK,
        file_patience=QUICK,
        file_limit=1_000_000,
    )
    platform = Slack(settings)
    async with aiohttp.ClientSession() as http, asyncio.TaskGroup() as group:
        there = LocalFarSide(workspace, platform, http)
        acting = group.create_task(there.act())
        try:
            yield there
        finally:
            acting.cancel()
            await platform.close()
