"""The Discord adapter: a bot over Discord's HTTP API and gateway."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import timedelta
from pathlib import Path

import msgspec
from msgspec import Struct, structs

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
from talaria.core.errors import BadCredentials, PlatformError, Refused, Rejected
from talaria.platforms.content import save_file
from talaria.platforms.discord.channels import ChannelDirectory, open_thread
from talaria.platforms.discord.client import ApiClient
from talaria.platforms.discord.incoming import (
    COMMAND,
    COMPONENT,
    BotIdentity,
    read_interaction,
    read_message,
    read_reaction,
    sticker_path,
)
from talaria.platforms.discord.outgoing import TEXT_LIMIT, Payload, build_menu
from talaria.platforms.discord.receiver import DurableProgressStore, Event, MemoryProgressStore, ProgressStore, Receiver
from talaria.platforms.discord.sender import MessagePoster, channel_id_of
from talaria.platforms.discord.settings import DiscordSettings
from talaria.platforms.discord.wire import DIRECT, Channel, Interaction, Message, Reaction, parse

_BEST_EFFORT = timedelta(seconds=5)
_MOST_PENDING = 200
_THINKING: Payload = {"type": 5, "data": {"flags": 1 << 6}}  # visible only to the person who asked
_UNCHANGED: Payload = {"type": 6}
_DOWNLOAD_LIMIT = 100 * 1024 * 1024

log = logging.getLogger(__name__)


class _Option(Struct, frozen=True):
    name: str


class _Command(Struct, frozen=True):
    name: str
    description: str = ""
    options: tuple[_Option, ...] = ()


class Commands:
    """The commands of one bot, and the chats with a pending command."""

    def __init__(self, client: ApiClient, commands: Sequence[tuple[str, str]]) -> None:
        self._client = client
        self._menu = build_menu(commands)
        self._pending: OrderedDict[str, Interaction] = OrderedDict()

    async def register(self) -> None:
        """Register the commands with Discord; nothing is sent if they are unchanged."""
        if not self._menu:
            return
        try:
            application = (await self._client.ask(lambda api: api.application_info()))["id"]
            registered = await self._client.ask(lambda api: api.get_global_commands(application))
            if _parse_commands(registered) != _parse_commands(self._menu):
                await self._client.ask(lambda api: api.bulk_upsert_global_commands(application, self._menu))
        except BadCredentials:
            raise
        except PlatformError as error:
            log.warning("discord: couldn't register commands: %s", error)

    async def acknowledge(self, interaction: Interaction, channel: str) -> None:
        """Acknowledge an interaction, which Discord expects within three seconds; repeating it is harmless."""
        if interaction.type not in (COMMAND, COMPONENT):
            return
        answer = _THINKING if interaction.type == COMMAND else _UNCHANGED
        try:
            await self._client.ask(lambda api: api.respond(interaction.id, interaction.token, answer), _BEST_EFFORT)
        except BadCredentials:
            raise
        except PlatformError as error:
            log.info("discord: couldn't acknowledge an interaction: %s", error)
            return
        if interaction.type == COMMAND:
            self._pending[channel] = interaction
            if len(self._pending) > _MOST_PENDING:
                self._pending.popitem(last=False)

    async def clear_thinking(self, channel: str) -> None:
        """Remove the "thinking" message now that the answer is there."""
        interaction = self._pending.pop(channel, None)
        if interaction is None:
            return
        try:
            await self._client.ask(
                lambda api: api.delete_original_response(interaction.application_id, interaction.token), _BEST_EFFORT
            )
        except PlatformError as error:
            log.info("discord: couldn't remove an interaction: %s", error)


def _parse_commands(commands: object) -> set[_Command]:
    return set(parse(commands, tuple[_Command, ...]))


class Discord:
    """One bot; ``commands`` are the names and help texts of its menu, ``state_store`` stores its read position.

    Messages can be sent whether it is connected or not. The creator closes it.
    """

    def __init__(
        self,
        settings: DiscordSettings,
        commands: Sequence[tuple[str, str]] = (),
        state_store: ProgressStore | None = None,
    ) -> None:
        self.name = settings.name
        self.abilities = PlatformCapabilities(
            text_limit=TEXT_LIMIT,
            edits=True,
            edit_pace=timedelta(seconds=1.2),
            typing=True,
            buttons=True,
            threads=True,
            reactions=True,
            servers=True,
            idempotent=True,
            exclusive=True,
            file_limit=settings.file_limit,
            # 50 requests per second in total; limits per channel are handled by `Pace`, from response headers.
            rates=Rates(network=Rate(per_second=40, burst=10)),
        )
        self._settings = settings
        self._state_store = state_store or MemoryProgressStore()
        self._client = ApiClient(settings)
        self._directory = ChannelDirectory(self._client)
        self._commands = Commands(self._client, commands)
        self._poster = MessagePoster(self._client, settings)

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[AsyncIterator[Incoming]]:
        """Log in and yield updates; each is acknowledged when the next is requested."""
        me = await self._client.me()
        await self._commands.register()
        settings = self._settings
        identity = BotIdentity(self.name, me.id, settings.group_mode, settings.free_channels)
        receiver = Receiver(self._client, settings, self._state_store)
        try:
            await receiver.start()
            async with aclosing(self._receive(receiver, identity)) as updates:
                yield updates
        finally:
            await receiver.disconnect()

    async def send(self, to: Address, content: Content, key: str) -> MessageRef:
        """Post a message; for some minutes the same key posts it once."""
        ref = await self._poster.send(to, content, key)
        await self._commands.clear_thinking(channel_id_of(to))
        return ref

    async def edit(self, ref: MessageRef, content: Content) -> None:
        """Replace the text and the buttons of a posted message."""
        await self._poster.edit(ref, content)

    async def show_typing(self, to: Address) -> None:
        """Show a typing indicator for ten seconds."""
        channel = channel_id_of(to)
        await self._client.ask(lambda api: api.send_typing(channel))

    async def react(self, ref: MessageRef, emoji: str) -> None:
        """Replace our mark on a message."""
        await self._poster.react(ref, emoji)

    async def fetch(self, attachment: Attachment, folder: Path) -> Path:
        """Download a file into a folder under a safe name and return its path."""
        if attachment.size > _DOWNLOAD_LIMIT:
            raise Rejected(f"{attachment.name} is larger than {_DOWNLOAD_LIMIT // 1024**2} MB")
        address = await self._resolve_url(attachment)
        data = await self._client.ask(lambda api: api.get_from_cdn(address), self._settings.file_patience)
        return await asyncio.to_thread(save_file, data, attachment.name, folder)

    async def create_handoff_thread(self, parent_chat_id: str, name: str) -> str | None:
        """Open a thread in a channel or a post in a forum; ``None`` if Discord refuses or in private."""
        if not parent_chat_id.isdecimal():
            return None
        return await open_thread(self._client, parent_chat_id, name)

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()

    async def _receive(self, receiver: Receiver, identity: BotIdentity) -> AsyncGenerator[Incoming, None]:
        async with aclosing(receiver.events()) as events:
            async for event in events:
                incoming = await self._read(event, identity)
                if incoming is not None:
                    yield incoming
                    receiver.record_seen(
                        channel_id_of(incoming.address), incoming.message_id, is_addressed=incoming.addressed
                    )

    async def _read(self, event: Event, identity: BotIdentity) -> Incoming | None:
        """Return the update; ``None`` if it isn't for us, or unreadable."""
        try:
            match event.name:
                case "MESSAGE_CREATE" | "MESSAGE_UPDATE":
                    return await self._read_message_event(event, identity)
                case "MESSAGE_REACTION_ADD":
                    reaction = msgspec.json.decode(event.data, type=Reaction)
                    channel = await self._find_channel(reaction.channel_id, reaction.guild_id)
                    return read_reaction(event.id, reaction, channel, identity)
                case "INTERACTION_CREATE":
                    return await self._read_interaction_event(
                        msgspec.json.decode(event.data, type=Interaction), identity
                    )
                case _:
                    self._directory.on_event(event)
        except msgspec.DecodeError as error:
            log.warning("%s: skipping %s, which can't be read: %s", self.name, event.name, error)
        return None

    async def _read_message_event(self, event: Event, identity: BotIdentity) -> Incoming | None:
        message = msgspec.json.decode(event.data, type=Message)
        if message.author.bot:
            return None
        if event.fetched:
            found = await self._directory.find(message.channel_id)
            message = structs.replace(message, guild_id=found.guild_id)
        channel = await self._find_channel(message.channel_id, message.guild_id)
        role = await self._directory.own_role(message.guild_id) if message.mention_roles else ""
        return read_message(message, channel, identity, edited=event.name == "MESSAGE_UPDATE", own_role=role)

    async def _read_interaction_event(self, interaction: Interaction, identity: BotIdentity) -> Incoming | None:
        channel_id = interaction.channel_id or (interaction.channel.id if interaction.channel else "")
        await self._commands.acknowledge(interaction, channel_id)
        channel = interaction.channel or await self._find_channel(channel_id, interaction.guild_id)
        return read_interaction(interaction, channel, identity)

    async def _find_channel(self, channel_id: str, guild_id: str) -> Channel:
        if not guild_id:
            return Channel(channel_id, DIRECT)
        return await self._directory.find(channel_id, guild_id)

    async def _resolve_url(self, attachment: Attachment) -> str:
        """Return the current URL of a file: the original one expires after some hours."""
        if path := sticker_path(attachment.reference):
            return self._settings.cdn_url.rstrip("/") + path
        channel, message, file = (*attachment.reference.split("/"), "", "")[:3]
        found = parse(await self._client.ask(lambda api: api.get_message(channel, message)), Message)
        files = [
            *found.attachments,
            *(one for snapshot in found.message_snapshots for one in snapshot.message.attachments),
        ]
        for one in files:
            if one.id == file:
                return one.url
        raise Rejected(f"{attachment.name} is no longer available on Discord")


def open_platform(account: PlatformAccount) -> Platform:
    """Return the adapter for the stored bot token."""
    token = account.secret("DISCORD_BOT_TOKEN")
    if not token:
        raise Refused("Discord needs a bot token. Run `talaria setup chat` to enter it.")
    given: dict[str, object] = dict(account.options)
    channels = account.options.get("free_channels", "")
    given["free_channels"] = [one.strip() for one in channels.split(",") if one.strip()]
    try:
        settings = msgspec.convert({**given, "token": token, "name": account.name}, DiscordSettings, strict=False)
    except msgspec.ValidationError as error:
        raise Refused(f"Invalid option in platforms.{account.name}: {error}.") from error
    platform = Discord(settings, account.commands, DurableProgressStore(account.store, account.name))
    account.closing.push_async_callback(platform.close)
    return platform
