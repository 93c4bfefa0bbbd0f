"""The world of the fake Discord: people, channels, and the bot's actions."""

import asyncio
import secrets
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from talaria.testing.discord_server.forms import unknown
from talaria.testing.discord_server.gateway import Gateway
from talaria.testing.discord_server.places import (
    Ids,
    Person,
    Post,
    StoredAttachment,
    StoredChannel,
    member_to_wire,
    message_to_wire,
)
from talaria.testing.wait import LIMIT


class Asked(Struct, kw_only=True, eq=False):
    """A command or button that was used: the bot's answer, and whether it still exists."""

    id: str
    token: str
    answer: int = 0
    ephemeral: bool = False
    standing: bool = False


class World:
    """All state of the server: one guild, ``guild``, and private chats."""

    def __init__(self, gateway: Gateway, me: Person, ids: Ids) -> None:
        self.me = me
        self.ids = ids
        self.gateway = gateway
        self.guild = ids.next()
        self.role = ids.next()
        self.people: dict[str, Person] = {}
        self.places: dict[str, StoredChannel] = {}
        self.asked: list[Asked] = []
        self.commands: list[dict[str, Any]] = []
        self.typing: list[str] = []
        self.nonces: dict[str, Post] = {}
        self._changed = asyncio.Event()
        gateway.greeting, gateway.changed = self._greeting, self.changed

    def person(self, name: str) -> Person:
        """Return the person of that name."""
        if name not in self.people:
            self.people[name] = Person(self.ids.next(), name.lower(), name)
        return self.people[name]

    def place(self, place_id: str) -> StoredChannel:
        """Return a place that is there, or refuse."""
        if place_id not in self.places:
            raise unknown("Channel")
        return self.places[place_id]

    def post(self, place: StoredChannel, post_id: str) -> Post:
        """Return a message that is there, or refuse."""
        found = next((post for post in place.posts if post.id == post_id), None)
        if found is None:
            raise unknown("Message")
        return found

    def stored(self, place: StoredChannel, name: str, data: bytes, content_type: str) -> StoredAttachment:
        """Store a file."""
        number = self.ids.next()
        return StoredAttachment(number, name, data, f"{self.gateway.public_url}/cdn/{place.id}/{number}", content_type)

    def file(self, place_id: str, file_id: str) -> StoredAttachment | None:
        """Return a stored file."""
        posts = self.places[place_id].posts if place_id in self.places else []
        return next((file for post in posts for file in post.files if file.id == file_id), None)

    async def tell(self, name: str, post: Post) -> None:
        """Tell the bot of a message."""
        whole = message_to_wire(post, self.me)
        if post.place.guild_id:
            whole |= {"guild_id": post.place.guild_id, "member": member_to_wire(post.author)}
        meant = not post.place.guild_id or post.author is self.me or self.me in post.mentions
        bare = None if meant else {**whole, "content": "", "attachments": [], "components": []}
        await self.gateway.tell(name, whole, bare)
        self.changed()

    async def ask(
        self, person: Person, place: StoredChannel, kind: int, data: dict[str, Any], post: Post | None
    ) -> Asked:
        """Use a command or press a button as a person."""
        asked = Asked(id=self.ids.next(), token=secrets.token_urlsafe(32))
        self.asked.append(asked)
        who: dict[str, Any] = {"user": person.wire()}
        if place.guild_id:
            who = {
                "guild_id": place.guild_id,
                "member": {**member_to_wire(person), "user": person.wire(), "permissions": "0"},
            }
        event = {
            "id": asked.id,
            "application_id": self.me.id,
            "type": kind,
            "token": asked.token,
            "version": 1,
            "data": data,
            "channel_id": place.id,
            "channel": place.wire(),
            "locale": "en-US",
            "entitlements": [],
            "attachment_size_limit": 10485760,
            **who,
        }
        if post is not None:
            event["message"] = message_to_wire(post, self.me)
        await self.gateway.tell("INTERACTION_CREATE", event)
        return asked

    def changed(self) -> None:
        """Wake the tasks that wait for a change."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def until(self, holds: Callable[[], bool], within: float = LIMIT) -> None:
        """Wait until something holds."""
        async with asyncio.timeout(within):
            while not holds():
                await self._changed.wait()

    def _greeting(self) -> list[tuple[str, Any]]:
        inside = [place for place in self.places.values() if place.guild_id]
        channels = [place.wire() for place in inside if not place.is_thread]
        threads = [place.wire() for place in inside if place.is_thread]
        everyone = [self.me, *self.people.values()]
        guild = {
            "id": self.guild,
            "name": "Home",
            "channels": channels,
            "threads": threads,
            "members": [{**member_to_wire(one), "user": one.wire()} for one in everyone],
            "member_count": len(everyone),
            "roles": [self.own_role()],
            "emojis": [],
            "stickers": [],
            "features": [],
            "voice_states": [],
            "presences": [],
            "stage_instances": [],
            "guild_scheduled_events": [],
            "owner_id": everyone[-1].id,
            "preferred_locale": "en-US",
        }
        return [("GUILD_CREATE", guild)]

    def own_role(self) -> dict[str, Any]:
        """Return the role that the server has for the bot."""
        colors = {"primary_color": 0, "secondary_color": None, "tertiary_color": None}
        return {
            "id": self.role,
            "name": self.me.username,
            "permissions": "0",
            "position": 1,
            "color": 0,
            "colors": colors,
            "hoist": False,
            "managed": True,
            "mentionable": False,
            "icon": None,
            "unicode_emoji": None,
            "flags": 0,
            "tags": {"bot_id": self.me.id},
        }
