"""The world of the fake Discord: people, channels, the bot's actions, and chats as simulated people see them."""

import asyncio
import secrets
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct

from talaria.testing.discord_server.channels import (
    PUBLIC_THREAD,
    Ids,
    Person,
    Post,
    StoredAttachment,
    StoredChannel,
    find_mentions,
    member_to_wire,
    message_to_wire,
)
from talaria.testing.discord_server.forms import unknown
from talaria.testing.discord_server.gateway import Gateway
from talaria.testing.wait import LIMIT


class Interaction(Struct, kw_only=True, eq=False):
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
        self.channels: dict[str, StoredChannel] = {}
        self.interactions: list[Interaction] = []
        self.commands: list[dict[str, Any]] = []
        self.typing: list[str] = []
        self.nonces: dict[str, Post] = {}
        self._changed = asyncio.Event()
        gateway.greeting, gateway.changed = self._make_greeting, self.changed

    def person(self, name: str) -> Person:
        """Return the person of that name."""
        if name not in self.people:
            self.people[name] = Person(self.ids.next(), name.lower(), name)
        return self.people[name]

    def channel(self, channel_id: str) -> StoredChannel:
        """Return an existing channel, or refuse."""
        if channel_id not in self.channels:
            raise unknown("Channel")
        return self.channels[channel_id]

    def post(self, channel: StoredChannel, post_id: str) -> Post:
        """Return a message that is there, or refuse."""
        found = next((post for post in channel.posts if post.id == post_id), None)
        if found is None:
            raise unknown("Message")
        return found

    def stored(self, channel: StoredChannel, name: str, data: bytes, content_type: str) -> StoredAttachment:
        """Store a file."""
        number = self.ids.next()
        return StoredAttachment(
            number, name, data, f"{self.gateway.public_url}/cdn/{channel.id}/{number}", content_type
        )

    def file(self, channel_id: str, file_id: str) -> StoredAttachment | None:
        """Return a stored file."""
        posts = self.channels[channel_id].posts if channel_id in self.channels else []
        return next((file for post in posts for file in post.files if file.id == file_id), None)

    async def dispatch(self, name: str, post: Post) -> None:
        """Send the event of a message to the bot."""
        whole = message_to_wire(post, self.me)
        if post.channel.guild_id:
            whole |= {"guild_id": post.channel.guild_id, "member": member_to_wire(post.author)}
        meant = not post.channel.guild_id or post.author is self.me or self.me in post.mentions
        bare = None if meant else {**whole, "content": "", "attachments": [], "components": []}
        await self.gateway.dispatch(name, whole, bare)
        self.changed()

    async def ask(
        self, person: Person, channel: StoredChannel, kind: int, data: dict[str, Any], post: Post | None
    ) -> Interaction:
        """Use a command or press a button as a person."""
        interaction = Interaction(id=self.ids.next(), token=secrets.token_urlsafe(32))
        self.interactions.append(interaction)
        who: dict[str, Any] = {"user": person.wire()}
        if channel.guild_id:
            who = {
                "guild_id": channel.guild_id,
                "member": {**member_to_wire(person), "user": person.wire(), "permissions": "0"},
            }
        event = {
            "id": interaction.id,
            "application_id": self.me.id,
            "type": kind,
            "token": interaction.token,
            "version": 1,
            "data": data,
            "channel_id": channel.id,
            "channel": channel.wire(),
            "locale": "en-US",
            "entitlements": [],
            "attachment_size_limit": 10485760,
            **who,
        }
        if post is not None:
            event["message"] = message_to_wire(post, self.me)
        await self.gateway.dispatch("INTERACTION_CREATE", event)
        return interaction

    def changed(self) -> None:
        """Wake the tasks that wait for a change."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def until(self, holds: Callable[[], bool], within: float = LIMIT) -> None:
        """Wait until something holds."""
        async with asyncio.timeout(within):
            while not holds():
                await self._changed.wait()

    def _make_greeting(self) -> list[tuple[str, Any]]:
        inside = [channel for channel in self.channels.values() if channel.guild_id]
        channels = [channel.wire() for channel in inside if not channel.is_thread]
        threads = [channel.wire() for channel in inside if channel.is_thread]
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


def reaction_event(world: World, post: Post, emoji: str, user_id: str) -> dict[str, Any]:
    """Return the event that reports a reaction to the bot."""
    event = {
        "user_id": user_id,
        "channel_id": post.channel.id,
        "message_id": post.id,
        "message_author_id": post.author.id,
        "emoji": {"id": None, "name": emoji},
        "burst": False,
        "type": 0,
    }
    return {**event, "guild_id": post.channel.guild_id} if post.channel.guild_id else event


class Room:
    """A channel, a thread or a private chat, and people's actions there; the bot is notified at once."""

    def __init__(self, world: World, channel: StoredChannel) -> None:
        self._world = world
        self.channel = channel
        self.id = channel.id

    @property
    def posts(self) -> list[Post]:
        """All messages."""
        return self.channel.posts

    @property
    def answers(self) -> list[Post]:
        """Return the messages of the bot."""
        return [post for post in self.channel.posts if post.author is self._world.me]

    async def says(
        self, person: Person, text: str, *, mention: bool = False, reply_to: Post | None = None, by_role: bool = False
    ) -> Post:
        """Write as a person, optionally mentioning the bot or its role."""
        me = self._world.me
        text = f"<@{me.id}> {text}" if mention else f"<@&{self._world.role}> {text}" if by_role else text
        people = find_mentions(text, [me, *self._world.people.values()])
        if reply_to is not None and reply_to.author not in people:
            people.append(reply_to.author)  # an answer calls whom it answers
        post = self._add(person, text)
        post.mentions, post.reply_to = people, reply_to
        post.roles = [self._world.role] if by_role else []
        await self._world.dispatch("MESSAGE_CREATE", post)
        return post

    async def sends(
        self, person: Person, name: str, data: bytes, content_type: str = "application/octet-stream", text: str = ""
    ) -> Post:
        """Send a file as a person."""
        post = self._add(person, text)
        post.files = [self._world.stored(self.channel, name, data, content_type)]
        await self._world.dispatch("MESSAGE_CREATE", post)
        return post

    async def speaks(self, person: Person, data: bytes) -> Post:
        """Send a voice note as a person."""
        post = self._add(person, "")
        stored = self._world.stored(self.channel, "voice-message.ogg", data, "audio/ogg")
        post.files = [StoredAttachment(stored.id, stored.name, data, stored.url, stored.content_type, 1.5, "AAAA")]
        post.flags = 1 << 13
        await self._world.dispatch("MESSAGE_CREATE", post)
        return post

    async def forwards(self, person: Person, forwarded: Post) -> Post:
        """Forward a message as a person."""
        post = self._add(person, "")
        post.forwarded = forwarded
        await self._world.dispatch("MESSAGE_CREATE", post)
        return post

    async def edits(self, post: Post, text: str) -> None:
        """Edit a message as a person."""
        post.text, post.edited_at = text, datetime.now(UTC)
        await self._world.dispatch("MESSAGE_UPDATE", post)

    async def previews(self, post: Post) -> None:
        """Let Discord show a preview of a link, which counts as a change of the message."""
        await self._world.dispatch("MESSAGE_UPDATE", post)

    async def redelivers(self, post: Post) -> None:
        """Let the bot hear of a message once more."""
        await self._world.dispatch("MESSAGE_CREATE", post)

    async def presses(self, person: Person, post: Post, label: str) -> Interaction:
        """Press a button, or choose from a menu, as a person."""
        value, of_menu = next((value, of_menu) for text, value, of_menu in post.choices if text == label)
        data: dict[str, object] = {"custom_id": value, "component_type": 2}
        if of_menu:
            menu = post.components[0]["components"][0]["custom_id"]
            data = {"custom_id": menu, "component_type": 3, "values": [value]}
        return await self._world.ask(person, self.channel, 3, data, post)

    async def uses(self, person: Person, command: str, arguments: str = "") -> Interaction:
        """Use a registered command as a person."""
        known = next(one for one in self._world.commands if one["name"] == command)
        options = [{"name": known["options"][0]["name"], "type": 3, "value": arguments}] if arguments else []
        data = {"id": known["id"], "name": command, "type": 1, "options": options}
        return await self._world.ask(person, self.channel, 2, data, None)

    async def reacts(self, person: Person, post: Post, emoji: str) -> None:
        """React to a message as a person."""
        post.reactions.setdefault(emoji, []).append(person.id)
        event = reaction_event(self._world, post, emoji, person.id)
        if self.channel.guild_id:
            event["member"] = {**member_to_wire(person), "user": person.wire()}
        await self._world.gateway.dispatch("MESSAGE_REACTION_ADD", event)

    async def opens_thread(self, person: Person, name: str) -> "Room":
        """Open a thread, or a post in a forum, as a person."""
        number = self._world.ids.next()
        thread = StoredChannel(
            id=number, type=PUBLIC_THREAD, name=name, guild_id=self.channel.guild_id, parent=self.channel, owner=person
        )
        self._world.channels[number] = thread
        await self._world.gateway.dispatch("THREAD_CREATE", thread.wire())
        return Room(self._world, thread)

    async def wait_for(self, matches: Callable[[Post], bool], *, within: float = LIMIT) -> Post:
        """Wait for a message of the bot that matches, and return the first."""
        try:
            await self._world.until(lambda: any(map(matches, self.answers)), within)
        except TimeoutError:
            seen = [post.text for post in self.posts]
            raise TimeoutError(f"This did not appear within {within:g} s. The chat has: {seen}") from None
        return next(filter(matches, self.answers))

    def _add(self, person: Person, text: str) -> Post:
        post = Post(id=self._world.ids.next(), channel=self.channel, author=person, text=text)
        self.channel.posts.append(post)
        return post
