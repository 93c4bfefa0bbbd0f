"""A channel from the perspective of simulated people."""

import asyncio
from collections.abc import Callable
from typing import Any

from talaria.testing.slack_server.blocks import choices_of
from talaria.testing.slack_server.office import SocketModeHub
from talaria.testing.slack_server.world import Message, StoredChannel, StoredFile, User, World
from talaria.testing.wait import LIMIT

_APP = {"token": "verification", "team_id": "T0TESTS", "api_app_id": "A0TALARIA", "type": "event_callback"}


class Channel:
    """One channel, or one private chat."""

    def __init__(self, world: World, office: SocketModeHub, place: StoredChannel) -> None:
        self.id = place.id
        self._world = world
        self._office = office
        self._place = place

    @property
    def messages(self) -> list[Message]:
        """Everything that was said."""
        return self._place.messages

    @property
    def answers(self) -> list[Message]:
        """Return what the app said."""
        return [one for one in self._place.messages if one.bot]

    async def says(self, user: User, text: str, *, thread: str = "", mention: bool = False) -> Message:
        """Write as a person; ``mention`` puts the app's name first."""
        named = f"<@{self._world.bot.id}> {text}" if mention else text
        message = Message(self._world.stamp(), user.id, named, thread)
        self._place.messages.append(message)
        shown = self._world.shown(message) | {"client_msg_id": f"client-{message.ts}"}
        await self._send_event(shown | self._parent(thread) | {"channel_type": self._place.kind})
        if f"<@{self._world.bot.id}>" in named and self._place.kind != "im":
            await self._send_event(shown | {"type": "app_mention"})
        return message

    async def shares(self, user: User, file: StoredFile, text: str = "", *, thread: str = "") -> Message:
        """Send a file as a person."""
        message = Message(self._world.stamp(), user.id, text, thread, files=[file])
        self._place.messages.append(message)
        shown = self._world.shown(message) | self._parent(thread)
        await self._send_event(shown | {"subtype": "file_share", "channel_type": self._place.kind})
        return message

    async def edits(self, user: User, message: Message, text: str) -> None:
        """Edit a message as a person; an unchanged text simulates a link preview added by Slack."""
        before = self._world.shown(message)
        message.text = text
        edited = {"edited": {"user": user.id, "ts": self._world.stamp()}} if before["text"] != text else {}
        await self._send_event(
            {
                "type": "message",
                "subtype": "message_changed",
                "hidden": True,
                "channel_type": self._place.kind,
                "ts": self._world.stamp(),
                "message": self._world.shown(message) | edited,
                "previous_message": before,
            }
        )

    async def reacts(self, user: User, message: Message, name: str) -> None:
        """React to a message as a person."""
        message.reactions.setdefault(name, []).append(user.id)
        item = {"type": "message", "channel": self.id, "ts": message.ts}
        event = {"type": "reaction_added", "user": user.id, "reaction": name, "item": item, "item_user": message.user}
        await self._send_event(event, channel=False)

    async def chooses(self, user: User, message: Message, label: str) -> None:
        """Press a button, or choose from a list, as a person."""
        action = next(action for shown, action in choices_of(message.blocks) if shown == label)
        container = {"type": "message", "message_ts": message.ts, "channel_id": self.id, "is_ephemeral": False}
        thread = {"thread_ts": message.thread_ts} if message.thread_ts else {}
        name = "directmessage" if self._place.kind == "im" else self._place.name
        payload = {
            "type": "block_actions",
            "user": {"id": user.id, "username": user.name.lower(), "name": user.name, "team_id": "T0TESTS"},
            "api_app_id": "A0TALARIA",
            "container": container | thread,
            "trigger_id": self._world.stamp(),
            "channel": {"id": self.id, "name": name},
            "message": self._world.shown(message),
            "response_url": f"{self._world.url}/response",
            "actions": [action | {"block_id": "b", "action_ts": self._world.stamp()}],
        }
        await self._office.post("interactive", payload)

    async def runs(self, user: User, command: str, text: str = "") -> None:
        """Use a slash command as a person; not possible in a thread."""
        payload = {
            "command": command,
            "text": text,
            "channel_id": self.id,
            "channel_name": "directmessage" if self._place.kind == "im" else self._place.name,
            "user_id": user.id,
            "user_name": user.name.lower(),
            "trigger_id": self._world.stamp(),
            "response_url": f"{self._world.url}/response",
            "team_id": "T0TESTS",
            "api_app_id": "A0TALARIA",
        }
        await self._office.post("slash_commands", payload)

    async def opens_assistant(self, user: User) -> Message:
        """Open an assistant thread as a person; return its first message."""
        root = Message(self._world.stamp(), self._world.bot.id, "New thread", bot=True)
        self._place.messages.append(root)
        thread = {"user_id": user.id, "channel_id": self.id, "thread_ts": root.ts, "context": {}}
        await self._send_event({"type": "assistant_thread_started", "assistant_thread": thread}, channel=False)
        return root

    def remove_bot(self) -> None:
        """Take the app out of the channel."""
        self._place.members.remove(self._world.bot.id)

    async def wait_for(self, wanted: Callable[[Message], bool], *, within: float = LIMIT) -> Message:
        """Return the first message of the app that is as wanted, as soon as it is."""
        async with asyncio.timeout(within):
            while not (found := [one for one in self.answers if wanted(one)]):  # noqa: ASYNC110 -- people look
                await asyncio.sleep(0.02)
        return found[0]

    def _parent(self, thread: str) -> dict[str, str]:
        parent = self._place.find(thread) if thread else None
        return {"parent_user_id": parent.user} if parent else {}

    async def _send_event(self, event: dict[str, Any], *, channel: bool = True) -> None:
        stamp = self._world.stamp()
        where = {"channel": self.id} if channel else {}
        event = event | where | {"event_ts": event.get("ts", stamp)}
        await self._office.post("events_api", _APP | {"event_id": f"Ev{stamp}", "event_time": 0, "event": event})
