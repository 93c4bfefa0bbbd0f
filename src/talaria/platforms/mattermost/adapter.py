"""The Mattermost adapter: receives posts, reads missed ones, and publishes replies."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from urllib.parse import quote

from msgspec import Struct

from talaria.contracts.platform import (
    Attachment,
    Button,
    Content,
    Incoming,
    MessageRef,
    Platform,
    PlatformAccount,
    PlatformCapabilities,
    Rate,
    Rates,
)
from talaria.contracts.store import Store
from talaria.contracts.values import NamedValue
from talaria.core.addresses import Address
from talaria.core.errors import Refused, Rejected
from talaria.core.messages import File, Image
from talaria.platforms.content import safe_file_name, sanitize_text, save_file
from talaria.platforms.mattermost.client import MattermostClient, MattermostSocket
from talaria.platforms.mattermost.integrations import MattermostIntegrations
from talaria.platforms.mattermost.settings import MattermostSettings, read_settings
from talaria.platforms.mattermost.wire import (
    TEXT_LIMIT,
    MattermostChannel,
    MattermostUser,
    Post,
    PostList,
    Uploaded,
    check_text,
    is_from_person,
    read_event_post,
    to_incoming,
)
from talaria.platforms.webhook_endpoint import merge_updates

_MOST_FILES = 5  # of a post
_MOST_CACHED = 1000
_OVERLAP = (
    10_000  # milliseconds read again, because posts of different channels don't arrive in the order of their times
)
_THREAD_NAME = 200

log = logging.getLogger(__name__)


class ReadPosition(Struct, frozen=True):
    """Time of the newest received post; posts up to ``floor`` are never received."""

    floor: int
    latest: int


MATTERMOST_POSITION = NamedValue("mattermost_position", ReadPosition)  # by account


class Mattermost:
    """One bot account on one server; the creator closes it."""

    def __init__(self, settings: MattermostSettings, store: Store, commands: Collection[str] = ()) -> None:
        self.name = settings.name
        self.abilities = PlatformCapabilities(
            text_limit=TEXT_LIMIT,
            edits=True,
            typing=True,
            buttons=settings.endpoint is not None,
            threads=True,
            replies=False,
            servers=True,
            exclusive=True,
            file_limit=settings.file_limit,
            rates=Rates(network=Rate(10, 100)),
        )
        self._settings = settings
        self._store = store
        self._commands = frozenset(commands)
        self._client = MattermostClient(settings)
        self._me: MattermostUser | None = None
        self._channels: dict[str, MattermostChannel] = {}
        self._users: dict[str, MattermostUser] = {}
        self._our_threads: dict[str, bool] = {}
        self._integrations = (
            MattermostIntegrations(settings, settings.endpoint, self._client, self._find_channel, self._commands)
            if settings.endpoint
            else None
        )
        self._confirmed: dict[str, None] = {}  # ids of updates that were taken, oldest first

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[AsyncIterator[Incoming]]:
        """Log in, and yield missed posts, then new ones."""
        me = await self._client.get("/users/me", MattermostUser)
        async with self._client.open_socket() as socket:
            position = await self._start(me)
            async with aclosing(self._receive_updates(socket, me, position)) as posts:
                if self._integrations is None:
                    yield posts
                    return
                await self._integrations.register(me)
                async with (
                    self._integrations.endpoint.connect() as pushed,
                    aclosing(merge_updates(posts, pushed)) as updates,
                ):
                    yield updates

    async def send(self, to: Address, content: Content, key: str) -> MessageRef:
        """Publish a post; more than five files are spread over several."""
        text = check_text(content.text, with_files=bool(content.files))
        ids = [await self._upload(to.chat_id, *file) for file in [self._read(file) for file in content.files]]
        groups = [ids[at : at + _MOST_FILES] for at in range(0, len(ids), _MOST_FILES)] or [[]]
        posts = [
            await self._publish(
                to, text if number == 0 else "", group, f"{key}:{number}", content.buttons if number == 0 else ()
            )
            for number, group in enumerate(groups)
        ]
        return MessageRef(to, posts[0].id)

    async def edit(self, ref: MessageRef, content: Content) -> None:
        """Replace the text of a post, and its buttons."""
        body: dict[str, object] = {"message": check_text(content.text)}
        if self._integrations is not None:
            address = ref.address
            body["props"] = self._integrations.attach(content.buttons, address.chat_id, address.thread_id)
        await self._client.post(f"/posts/{quote(ref.message_id, safe='')}/patch", body, Post, "PUT")

    async def show_typing(self, to: Address) -> None:
        """Show that we are typing, for some seconds."""
        await self._client.post("/users/me/typing", {"channel_id": to.chat_id, "parent_id": to.thread_id}, dict)

    async def fetch(self, attachment: Attachment, folder: Path) -> Path:
        """Download a file of a post."""
        data = await self._client.request(
            "GET",
            f"/files/{quote(attachment.reference, safe='')}",
            patience=self._settings.file_patience,
            limit=self._settings.file_limit,
        )
        return await asyncio.to_thread(save_file, data, attachment.name, folder, attachment.media_type)

    async def create_handoff_thread(self, parent_chat_id: str, name: str) -> str | None:
        """Publish a post in the channel, which the thread continues."""
        title = " ".join(sanitize_text(name).split())[:_THREAD_NAME] or "Conversation"
        try:
            return (await self._publish(Address(self.name, parent_chat_id, "group"), title, [], "")).id
        except Rejected as error:
            log.warning("%s: can't create a thread in %s: %s", self.name, parent_chat_id, error)
            return None

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()

    async def _start(self, me: MattermostUser) -> ReadPosition:
        """Return how far posts were received; at the very first start, only later posts are."""
        self._me = me
        channels = await self._list_channels()
        stored = await self._store.read(lambda tx: MATTERMOST_POSITION.get(tx, f"{self.name}:{me.id}"))
        if stored is not None:
            return stored
        latest = max((channel.last_post_at for channel in channels), default=0) or 1
        position = ReadPosition(latest, latest)
        await self._save(me, position)
        return position

    async def _save(self, me: MattermostUser, position: ReadPosition) -> None:
        await self._store.write(lambda tx: MATTERMOST_POSITION.write(tx, f"{self.name}:{me.id}", position))

    async def _receive_updates(
        self, socket: MattermostSocket, me: MattermostUser, position: ReadPosition
    ) -> AsyncGenerator[Incoming, None]:
        posts = await self._read_missed(position)
        while True:
            for post in posts:
                update_id = f"{post.id}:{post.edit_at}"
                if update_id in self._confirmed:
                    continue
                if is_from_person(post, me):
                    yield await self._read_post(post, me)
                    self._confirm(update_id)
                if post.create_at > position.latest:
                    position = ReadPosition(position.floor, post.create_at)
                    await self._save(me, position)
            post_of_event = read_event_post(await socket.next_event())
            posts = [post_of_event] if post_of_event else []

    def _confirm(self, update_id: str) -> None:
        self._confirmed[update_id] = None
        if len(self._confirmed) > _MOST_CACHED:
            del self._confirmed[next(iter(self._confirmed))]

    async def _read_missed(self, position: ReadPosition) -> list[Post]:
        """Return the posts after a position in all channels, oldest first; edits of older posts are left out."""
        since = max(position.latest - _OVERLAP, position.floor)
        missed: list[Post] = []
        for channel in [one for one in self._channels.values() if one.last_post_at > since]:
            page = await self._client.get(f"/channels/{channel.id}/posts?since={since}", PostList)
            missed += [post for post in (page.posts or {}).values() if post.create_at > since]
        return sorted(missed, key=lambda post: post.create_at)

    async def _read_post(self, post: Post, me: MattermostUser) -> Incoming:
        channel = await self._find_channel(post.channel_id)
        if post.user_id not in self._users:
            self._users[post.user_id] = await self._client.get(f"/users/{post.user_id}", MattermostUser)
        return to_incoming(
            post,
            channel,
            self._users[post.user_id],
            me,
            platform=self.name,
            commands=self._commands,
            answers_us=bool(post.root_id) and await self._is_our_thread(post.root_id, me),
        )

    async def _find_channel(self, channel_id: str) -> MattermostChannel:
        if channel_id not in self._channels:
            path = f"/channels/{quote(channel_id, safe='')}"
            self._channels[channel_id] = await self._client.get(path, MattermostChannel)
        return self._channels[channel_id]

    async def _is_our_thread(self, root_id: str, me: MattermostUser) -> bool:
        """Return whether a thread began with a post of ours, or with one that mentions us."""
        if root_id not in self._our_threads:
            if len(self._our_threads) >= _MOST_CACHED:
                self._our_threads.clear()
            try:
                root = await self._client.get(f"/posts/{root_id}", Post)
            except Rejected:  # it was deleted
                return False
            self._our_threads[root_id] = root.user_id == me.id or f"@{me.username}" in root.message
        return self._our_threads[root_id]

    async def _list_channels(self) -> list[MattermostChannel]:
        channels = await self._client.get("/users/me/channels", list[MattermostChannel])
        self._channels = {channel.id: channel for channel in channels}
        return channels

    async def _publish(
        self, to: Address, text: str, file_ids: list[str], key: str, buttons: Sequence[Button] = ()
    ) -> Post:
        body: dict[str, object] = {"channel_id": to.chat_id, "message": text, "root_id": to.thread_id}
        if buttons and self._integrations is not None:
            body["props"] = self._integrations.attach(buttons, to.chat_id, to.thread_id)
        if file_ids:
            body["file_ids"] = file_ids
        if key:  # the server publishes a repeated key once, for half a minute
            body["pending_post_id"] = key
        return await self._client.post("/posts", body, Post, has_key=bool(key))

    def _read(self, file: File | Image) -> tuple[str, bytes]:
        path = Path(file.source)
        name = safe_file_name(getattr(file, "name", "") or path.name, file.media_type)
        try:
            if (size := path.stat().st_size) > self._settings.file_limit:
                raise Rejected(f"{name} has {size} bytes, and the limit is {self._settings.file_limit}")
            return name, path.read_bytes()
        except OSError as error:
            raise Rejected(f"{file.source} can't be read: {error.strerror}") from error

    async def _upload(self, channel_id: str, name: str, data: bytes) -> str:
        path = f"/files?channel_id={quote(channel_id, safe='')}&filename={quote(name, safe='')}"
        headers = {"content-type": "application/octet-stream"}
        body = await self._client.request("POST", path, data, headers, patience=self._settings.file_patience)
        return self._client.decode(body, Uploaded).file_infos[0].id


def open_platform(account: PlatformAccount) -> Platform:
    """Return the adapter for the bot account of a profile."""
    server, token = account.secret("MATTERMOST_URL"), account.secret("MATTERMOST_TOKEN")
    if not server or not token:
        raise Refused("Mattermost needs MATTERMOST_URL and MATTERMOST_TOKEN. Run `talaria setup chat` to enter them.")
    command_tokens = account.secret("MATTERMOST_COMMAND_TOKEN") or ""
    settings = read_settings(account.name, account.options, server, token, command_tokens)
    platform = Mattermost(settings, account.store, [name for name, _ in account.commands])
    account.closing.push_async_callback(platform.close)
    return platform
