"""A bot on Discord: an implementation of `Platform` over its HTTP interface and its gateway."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import timedelta
from pathlib import Path

import msgspec
from msgspec import structs

from talaria.contracts.platform import Abilities, Attachment, Content, Incoming, MessageRef, Rate, Rates
from talaria.core.addresses import Address
from talaria.core.errors import Rejected
from talaria.platforms.discord.calls import Calls
from talaria.platforms.discord.channels import Directory
from talaria.platforms.discord.commands import Commands
from talaria.platforms.discord.incoming import Account, read_interaction, read_message, read_reaction, sticker_path
from talaria.platforms.discord.keeping import MemoryShelf, Shelf
from talaria.platforms.discord.outgoing import TEXT_LIMIT
from talaria.platforms.discord.posting import Posting, channel_of
from talaria.platforms.discord.receiving import Event, Receiver
from talaria.platforms.discord.settings import DiscordSettings
from talaria.platforms.discord.threads import open_thread
from talaria.platforms.discord.wire import DIRECT, Channel, Interaction, Message, Reaction, read
from talaria.platforms.files import save

_LARGEST_DOWNLOAD = 100 * 1024 * 1024

log = logging.getLogger(__name__)


class Discord:
    """One bot; ``commands`` are the names and help of what it offers, ``shelf`` keeps how far everything was read.

    Messages can be sent whether it is connected or not. Whoever made it closes it.
    """

    def __init__(
        self, settings: DiscordSettings, commands: Sequence[tuple[str, str]] = (), shelf: Shelf | None = None
    ) -> None:
        self.name = settings.name
        self.abilities = Abilities(
            text_limit=TEXT_LIMIT,
            edits=True,
            edit_pace=timedelta(seconds=1.2),
            typing=True,
            buttons=True,
            threads=True,
            reactions=True,
            idempotent=True,
            exclusive=True,
            file_limit=settings.file_limit,
            # 50 requests per second in all; each channel's own limit is kept by `Pace`, from the headers of answers.
            rates=Rates(network=Rate(per_second=40, burst=10)),
        )
        self._settings = settings
        self._shelf = shelf or MemoryShelf()
        self._calls = Calls(settings)
        self._directory = Directory(self._calls)
        self._commands = Commands(self._calls, commands)
        self._posting = Posting(self._calls, settings)

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[AsyncIterator[Incoming]]:
        """Log in and yield what people do; it is taken when the next is asked for."""
        me = await self._calls.me()
        await self._commands.register()
        settings = self._settings
        account = Account(self.name, me.id, settings.group_mode, settings.free_channels)
        receiver = Receiver(self._calls, settings, self._shelf)
        try:
            await receiver.begin()
            async with aclosing(self._arriving(receiver, account)) as arrivals:
                yield arrivals
        finally:
            await receiver.part()

    async def send(self, to: Address, content: Content, key: str) -> MessageRef:
        """Post a message; for some minutes the same key posts it once."""
        ref = await self._posting.send(to, content, key)
        await self._commands.answered(channel_of(to))
        return ref

    async def edit(self, ref: MessageRef, content: Content) -> None:
        """Replace the text and the buttons of a posted message."""
        await self._posting.edit(ref, content)

    async def show_typing(self, to: Address) -> None:
        """Show for ten seconds that an answer is being written."""
        channel = channel_of(to)
        await self._calls.ask(lambda api: api.send_typing(channel))

    async def react(self, ref: MessageRef, emoji: str) -> None:
        """Mark a message in place of our mark before."""
        await self._posting.react(ref, emoji)

    async def fetch(self, attachment: Attachment, folder: Path) -> Path:
        """Download a file into a folder under a safe name and return where it is."""
        if attachment.size > _LARGEST_DOWNLOAD:
            raise Rejected(f"{attachment.name} is larger than {_LARGEST_DOWNLOAD // 1024**2} MB")
        address = await self._address_of(attachment)
        data = await self._calls.ask(lambda api: api.get_from_cdn(address), self._settings.file_patience)
        return await asyncio.to_thread(save, data, attachment.name, folder)

    async def create_handoff_thread(self, parent_chat_id: str, name: str) -> str | None:
        """Open a thread in a channel or a post in a forum; ``None`` in a private chat and where that is refused."""
        if not parent_chat_id.isdecimal():
            return None
        return await open_thread(self._calls, parent_chat_id, name)

    async def close(self) -> None:
        """Let go of all connections."""
        await self._calls.close()

    async def _arriving(self, receiver: Receiver, account: Account) -> AsyncGenerator[Incoming, None]:
        async with aclosing(receiver.events()) as events:
            async for event in events:
                incoming = await self._read(event, account)
                if incoming is not None:
                    yield incoming
                    receiver.note(channel_of(incoming.address), incoming.message_id, ours=incoming.addressed)

    async def _read(self, event: Event, account: Account) -> Incoming | None:
        """Return what somebody did; ``None`` where nothing in it is for us, or it cannot be read."""
        try:
            match event.name:
                case "MESSAGE_CREATE" | "MESSAGE_UPDATE":
                    return await self._message(event, account)
                case "MESSAGE_REACTION_ADD":
                    reaction = msgspec.json.decode(event.data, type=Reaction)
                    channel = await self._channel(reaction.channel_id, reaction.guild_id)
                    return read_reaction(event.id, reaction, channel, account)
                case "INTERACTION_CREATE":
                    return await self._interaction(msgspec.json.decode(event.data, type=Interaction), account)
                case _:
                    self._directory.hear(event)
        except msgspec.DecodeError as error:
            log.warning("%s: %s cannot be read and is left out: %s", self.name, event.name, error)
        return None

    async def _message(self, event: Event, account: Account) -> Incoming | None:
        message = msgspec.json.decode(event.data, type=Message)
        if message.author.bot:
            return None
        if event.fetched:
            found = await self._directory.find(message.channel_id)
            message = structs.replace(message, guild_id=found.guild_id)
        channel = await self._channel(message.channel_id, message.guild_id)
        role = await self._directory.own_role(message.guild_id) if message.mention_roles else ""
        return read_message(message, channel, account, edited=event.name == "MESSAGE_UPDATE", own_role=role)

    async def _interaction(self, interaction: Interaction, account: Account) -> Incoming | None:
        place = interaction.channel_id or (interaction.channel.id if interaction.channel else "")
        await self._commands.acknowledge(interaction, place)
        channel = interaction.channel or await self._channel(place, interaction.guild_id)
        return read_interaction(interaction, channel, account)

    async def _channel(self, channel_id: str, guild_id: str) -> Channel:
        if not guild_id:
            return Channel(channel_id, DIRECT)
        return await self._directory.find(channel_id, guild_id)

    async def _address_of(self, attachment: Attachment) -> str:
        """Return where a file lies now: the address that came with it is good for some hours only."""
        if path := sticker_path(attachment.reference):
            return self._settings.cdn_url.rstrip("/") + path
        channel, message, file = (*attachment.reference.split("/"), "", "")[:3]
        found = read(await self._calls.ask(lambda api: api.get_message(channel, message)), Message)
        files = [*found.attachments, *(one for shot in found.message_snapshots for one in shot.message.attachments)]
        for one in files:
            if one.id == file:
                return one.url
        raise Rejected(f"{attachment.name} is not at Discord any more")
