"""A chat from the perspective of simulated people."""

from collections.abc import Callable
from datetime import UTC, datetime

from talaria.testing.discord_server.methods import reaction_event
from talaria.testing.discord_server.places import (
    PUBLIC_THREAD,
    Person,
    Post,
    StoredAttachment,
    StoredChannel,
    find_mentions,
    member_to_wire,
)
from talaria.testing.discord_server.world import Asked, World
from talaria.testing.wait import LIMIT


class Room:
    """A channel, a thread or a private chat, and people's actions there; the bot is notified at once."""

    def __init__(self, world: World, place: StoredChannel) -> None:
        self._world = world
        self.place = place
        self.id = place.id

    @property
    def posts(self) -> list[Post]:
        """Everything that was said."""
        return self.place.posts

    @property
    def answers(self) -> list[Post]:
        """Return what the bot said."""
        return [post for post in self.place.posts if post.author is self._world.me]

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
        await self._world.tell("MESSAGE_CREATE", post)
        return post

    async def sends(
        self, person: Person, name: str, data: bytes, content_type: str = "application/octet-stream", text: str = ""
    ) -> Post:
        """Send a file as a person."""
        post = self._add(person, text)
        post.files = [self._world.stored(self.place, name, data, content_type)]
        await self._world.tell("MESSAGE_CREATE", post)
        return post

    async def speaks(self, person: Person, data: bytes) -> Post:
        """Send a voice note as a person."""
        post = self._add(person, "")
        kept = self._world.stored(self.place, "voice-message.ogg", data, "audio/ogg")
        post.files = [StoredAttachment(kept.id, kept.name, data, kept.url, kept.content_type, 1.5, "AAAA")]
        post.flags = 1 << 13
        await self._world.tell("MESSAGE_CREATE", post)
        return post

    async def forwards(self, person: Person, passed: Post) -> Post:
        """Forward a message as a person."""
        post = self._add(person, "")
        post.passed = passed
        await self._world.tell("MESSAGE_CREATE", post)
        return post

    async def edits(self, post: Post, text: str) -> None:
        """Edit a message as a person."""
        post.text, post.edited_at = text, datetime.now(UTC)
        await self._world.tell("MESSAGE_UPDATE", post)

    async def previews(self, post: Post) -> None:
        """Let Discord show a preview of a link, which counts as a change of the message."""
        await self._world.tell("MESSAGE_UPDATE", post)

    async def redelivers(self, post: Post) -> None:
        """Let the bot hear of a message once more."""
        await self._world.tell("MESSAGE_CREATE", post)

    async def presses(self, person: Person, post: Post, label: str) -> Asked:
        """Press a button, or choose from a menu, as a person."""
        value, of_menu = next((value, of_menu) for text, value, of_menu in post.choices if text == label)
        data: dict[str, object] = {"custom_id": value, "component_type": 2}
        if of_menu:
            menu = post.components[0]["components"][0]["custom_id"]
            data = {"custom_id": menu, "component_type": 3, "values": [value]}
        return await self._world.ask(person, self.place, 3, data, post)

    async def uses(self, person: Person, command: str, words: str = "") -> Asked:
        """Use a registered command as a person."""
        known = next(one for one in self._world.commands if one["name"] == command)
        options = [{"name": known["options"][0]["name"], "type": 3, "value": words}] if words else []
        data = {"id": known["id"], "name": command, "type": 1, "options": options}
        return await self._world.ask(person, self.place, 2, data, None)

    async def reacts(self, person: Person, post: Post, emoji: str) -> None:
        """React to a message as a person."""
        post.marks.setdefault(emoji, []).append(person.id)
        told = reaction_event(self._world, post, emoji, person.id)
        if self.place.guild_id:
            told["member"] = {**member_to_wire(person), "user": person.wire()}
        await self._world.gateway.tell("MESSAGE_REACTION_ADD", told)

    async def opens_thread(self, person: Person, name: str) -> "Room":
        """Open a thread, or a post in a forum, as a person."""
        number = self._world.ids.next()
        thread = StoredChannel(
            id=number, type=PUBLIC_THREAD, name=name, guild_id=self.place.guild_id, parent=self.place, owner=person
        )
        self._world.places[number] = thread
        await self._world.gateway.tell("THREAD_CREATE", thread.wire())
        return Room(self._world, thread)

    async def wait_for(self, wanted: Callable[[Post], bool], *, within: float = LIMIT) -> Post:
        """Wait for a message of the bot that is as wanted, and return the first such one."""
        try:
            await self._world.until(lambda: any(map(wanted, self.answers)), within)
        except TimeoutError:
            seen = [post.text for post in self.posts]
            raise TimeoutError(f"This did not appear within {within:g} s. The chat has: {seen}") from None
        return next(filter(wanted, self.answers))

    def _add(self, person: Person, text: str) -> Post:
        post = Post(id=self._world.ids.next(), place=self.place, author=person, text=text)
        self.place.posts.append(post)
        return post
