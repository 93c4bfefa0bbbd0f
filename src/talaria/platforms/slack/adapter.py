"""The Slack adapter: an app over Socket Mode and the Web API."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from talaria.contracts.platform import (
    Attachment,
    Content,
    Incoming,
    MessageRef,
    Platform,
    PlatformAccount,
    PlatformCapabilities,
    Rate,
    Rates,
)
from talaria.core.addresses import Address
from talaria.core.errors import Refused, Rejected
from talaria.core.ids import new_id
from talaria.platforms.content import save_file
from talaria.platforms.slack.client import ApiClient, NameDirectory
from talaria.platforms.slack.incoming import BotIdentity, make_address
from talaria.platforms.slack.outgoing import TEXT_LIMIT, starter_text
from talaria.platforms.slack.receiver import (
    Backfill,
    DurablePositionStore,
    MemoryPositionStore,
    PositionStore,
    Receiver,
    ReceiverServices,
    SeenIds,
    open_socket,
)
from talaria.platforms.slack.sender import MessagePoster
from talaria.platforms.slack.settings import SlackSettings
from talaria.platforms.slack.threads import Assistant, DurableThreadStore, JoinedThreads, MemoryThreadStore, ThreadStore

log = logging.getLogger(__name__)


class Slack:
    """One app; ``commands`` are the names and help texts of our commands.

    ``state_store`` stores the threads in which it takes part, ``positions`` its read positions.

    Messages can be sent whether it is connected or not. The creator closes it.
    """

    def __init__(
        self,
        settings: SlackSettings,
        commands: Sequence[tuple[str, str]] = (),
        state_store: ThreadStore | None = None,
        positions: PositionStore | None = None,
    ) -> None:
        self.name = settings.name
        # Not exclusive: Slack sends each event to one of several connections, so that every worker may listen.
        self.abilities = PlatformCapabilities(
            text_limit=TEXT_LIMIT,
            edits=True,
            edit_pace=timedelta(seconds=2),
            typing=True,
            buttons=True,
            threads=True,
            reactions=True,
            servers=True,
            file_limit=settings.file_limit,
            # https://api.slack.com/apis/rate-limits: one message per second in a channel, some hundreds per minute.
            rates=Rates(
                network=Rate(per_second=5, burst=20),
                chat=Rate(per_second=1, burst=3),
                group=Rate(per_second=1, burst=3),
            ),
        )
        self._settings = settings
        self._commands = frozenset(name for name, _ in commands)
        self._client = ApiClient(settings)
        self._threads = JoinedThreads(state_store or MemoryThreadStore())
        self._poster = MessagePoster(self._client, settings, self._threads)
        self._assistant = Assistant(self._client)
        self._directory = NameDirectory(self._client)
        self._backfill = Backfill(self._client, positions or MemoryPositionStore(), self._threads)
        self._seen_ids = SeenIds()
        self._connected_until: float | None = None

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[AsyncIterator[Incoming]]:
        """Connect and yield updates; an envelope is acknowledged when the next one is requested.

        Slash commands and buttons are acknowledged after two seconds at the latest: Slack shows an error after three,
        and never sends them again.
        """
        slack_user = await self._poster.fetch_identity()
        identity = BotIdentity(
            platform=self.name,
            user_id=slack_user.user_id,
            name=slack_user.name,
            group_mode=self._settings.group_mode,
            channel_replies=self._settings.channel_replies,
            command=self._settings.command.removeprefix("/").lower(),
            commands=self._commands,
            workspace=slack_user.workspace,
            is_org_wide=slack_user.is_org_wide,
        )
        await self._threads.prune()
        services = ReceiverServices(
            poster=self._poster,
            threads=self._threads,
            directory=self._directory,
            assistant=self._assistant,
            missed=self._backfill,
        )
        receiver = Receiver(identity, self._seen_ids, services)
        async with open_socket(self._client, self._settings) as socket:
            missed = await self._backfill.find() if self._was_away() else []
            async with aclosing(receiver.receive(socket, missed)) as updates:
                try:
                    yield updates
                finally:
                    self._connected_until = asyncio.get_running_loop().time()

    def _was_away(self) -> bool:
        """Return whether nobody may have listened for longer than Slack retries."""
        now = asyncio.get_running_loop().time()
        return self._connected_until is None or now - self._connected_until > self._settings.away.total_seconds()

    async def send(self, to: Address, content: Content, key: str) -> MessageRef:
        """Post one message, then its files; ``key`` is sent along, but Slack ignores it."""
        return await self._poster.send(to, content, key)

    async def edit(self, ref: MessageRef, content: Content) -> None:
        """Replace the text and the buttons of a posted message."""
        await self._poster.edit(ref, content)

    async def show_typing(self, to: Address) -> None:
        """Show a typing indicator in a thread; elsewhere Slack has none.

        There it only checks, from time to time, that the channel still exists.
        """
        if to.thread_id:
            await self._assistant.show_status(to)
        else:
            await self._directory.check_access(to.chat_id)

    async def react(self, ref: MessageRef, emoji: str) -> None:
        """Replace our mark on a message, with the nearest emoji that Slack has."""
        await self._poster.react(ref, emoji)

    async def fetch(self, attachment: Attachment, folder: Path) -> Path:
        """Download a file into a folder under a safe name and return its path."""
        if attachment.size > self._settings.file_limit:
            raise Rejected(f"the file is larger than {self._settings.file_limit} bytes")
        answer = await self._client.ask(self._client.web.files_info(file=attachment.reference))
        file: dict[str, Any] = answer.get("file") or {}
        url = str(file.get("url_private_download") or file.get("url_private") or "")
        data = await self._client.fetch_bytes(url, attachment.media_type)
        return await asyncio.to_thread(save_file, data, attachment.name, folder, attachment.media_type)

    async def create_handoff_thread(self, parent_chat_id: str, name: str) -> str | None:
        """Post the first message of a thread; ``None`` if we may not post."""
        try:
            starter = await self.send(
                make_address(self.name, parent_chat_id, ""), Content(text=starter_text(name)), new_id()
            )
        except Rejected as error:
            log.info("%s: can't create a thread in %s: %s", self.name, parent_chat_id, error)
            return None
        await self._threads.join(starter.address.chat_id, starter.message_id)
        return starter.message_id

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()


def open_platform(account: PlatformAccount) -> Platform:
    """Return the adapter for the stored tokens."""
    tokens = {"token": account.secret("SLACK_BOT_TOKEN"), "app_token": account.secret("SLACK_APP_TOKEN")}
    if not all(tokens.values()):
        raise Refused("Slack needs a bot token and an app-level token. Run `talaria setup chat` to enter them.")
    given = {**account.options, **tokens, "name": account.name}
    try:
        settings = msgspec.convert(given, SlackSettings, strict=False)
    except msgspec.ValidationError as error:
        raise Refused(f"Invalid option in platforms.{account.name}: {error}.") from error
    state_store, positions = (
        DurableThreadStore(account.store, account.name),
        DurablePositionStore(account.store, account.name),
    )
    platform = Slack(settings, account.commands, state_store, positions)
    account.closing.push_async_callback(platform.close)
    return platform
