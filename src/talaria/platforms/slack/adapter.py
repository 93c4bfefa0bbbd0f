"""An app in a Slack workspace: an implementation of `Platform` over Socket Mode and the Web API."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from talaria.contracts.platform import Abilities, Attachment, Content, Incoming, MessageRef, Rate, Rates
from talaria.core.addresses import Address
from talaria.core.errors import Rejected
from talaria.core.ids import new_id
from talaria.platforms.files import save
from talaria.platforms.slack.assistant import Assistant
from talaria.platforms.slack.calls import Calls
from talaria.platforms.slack.directory import Directory
from talaria.platforms.slack.incoming import Me, place
from talaria.platforms.slack.missed import MemoryNotes, Missed, Notes
from talaria.platforms.slack.outgoing import TEXT_LIMIT, seed_text
from talaria.platforms.slack.posting import Posting
from talaria.platforms.slack.receiving import Desk, Receiver, Taken
from talaria.platforms.slack.settings import SlackSettings
from talaria.platforms.slack.socket import open_socket
from talaria.platforms.slack.threads import MemoryShelf, OurThreads, Shelf

log = logging.getLogger(__name__)


class Slack:
    """One app; ``commands`` are the names and help of ours.

    ``shelf`` keeps the threads in which it takes part, ``notes`` how far it has heard.

    Messages can be sent whether it is connected or not. Whoever made it closes it.
    """

    def __init__(
        self,
        settings: SlackSettings,
        commands: Sequence[tuple[str, str]] = (),
        shelf: Shelf | None = None,
        notes: Notes | None = None,
    ) -> None:
        self.name = settings.name
        # Not exclusive: of several connections Slack hands each event to one, so that every worker may listen.
        self.abilities = Abilities(
            text_limit=TEXT_LIMIT,
            edits=True,
            edit_pace=timedelta(seconds=2),
            typing=True,
            buttons=True,
            threads=True,
            reactions=True,
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
        self._calls = Calls(settings)
        self._threads = OurThreads(shelf or MemoryShelf())
        self._posting = Posting(self._calls, settings, self._threads)
        self._assistant = Assistant(self._calls)
        self._directory = Directory(self._calls)
        self._missed = Missed(self._calls, notes or MemoryNotes(), self._threads)
        self._taken = Taken()
        self._heard_until: float | None = None

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[AsyncIterator[Incoming]]:
        """Connect and yield what people do; an envelope is acknowledged when the next one is asked for.

        Slash commands and buttons are acknowledged after two seconds at the latest: Slack shows an error after three,
        and never hands them over again.
        """
        us = await self._posting.who()
        me = Me(
            platform=self.name,
            user_id=us.user_id,
            name=us.name,
            group_mode=self._settings.group_mode,
            channel_replies=self._settings.channel_replies,
            command=self._settings.command.removeprefix("/").lower(),
            commands=self._commands,
        )
        await self._threads.begin()
        desk = Desk(
            posting=self._posting,
            threads=self._threads,
            directory=self._directory,
            assistant=self._assistant,
            missed=self._missed,
        )
        receiver = Receiver(me, self._taken, desk)
        async with open_socket(self._calls, self._settings) as socket:
            missed = await self._missed.find() if self._was_away() else []
            async with aclosing(receiver.arriving(socket, missed)) as arrivals:
                try:
                    yield arrivals
                finally:
                    self._heard_until = asyncio.get_running_loop().time()

    def _was_away(self) -> bool:
        """Tell whether nobody may have listened for longer than Slack surely tries again."""
        now = asyncio.get_running_loop().time()
        return self._heard_until is None or now - self._heard_until > self._settings.away.total_seconds()

    async def send(self, to: Address, content: Content, key: str) -> MessageRef:
        """Post one message, its files behind it; ``key`` goes along, but Slack does not heed it."""
        return await self._posting.send(to, content, key)

    async def edit(self, ref: MessageRef, content: Content) -> None:
        """Replace the text and the buttons of a posted message."""
        await self._posting.edit(ref, content)

    async def show_typing(self, to: Address) -> None:
        """Show in a thread that an answer is being written; elsewhere Slack shows nothing of the kind.

        There it is only made sure, now and then, that the channel is still there.
        """
        if to.thread_id:
            await self._assistant.show_status(to)
        else:
            await self._directory.expect(to.chat_id)

    async def react(self, ref: MessageRef, emoji: str) -> None:
        """Mark a message in place of our mark before, with what comes nearest among the marks that Slack has."""
        await self._posting.react(ref, emoji)

    async def fetch(self, attachment: Attachment, folder: Path) -> Path:
        """Download a file into a folder under a safe name and return where it is."""
        if attachment.size > self._settings.file_limit:
            raise Rejected(f"the file is larger than {self._settings.file_limit} bytes")
        answer = await self._calls.ask(self._calls.web.files_info(file=attachment.reference))
        file: dict[str, Any] = answer.get("file") or {}
        url = str(file.get("url_private_download") or file.get("url_private") or "")
        data = await self._calls.load(url, attachment.media_type)
        return await asyncio.to_thread(save, data, attachment.name, folder, attachment.media_type)

    async def create_handoff_thread(self, parent_chat_id: str, name: str) -> str | None:
        """Post a message for a thread to begin with; ``None`` where we may not speak."""
        try:
            seed = await self.send(place(self.name, parent_chat_id, ""), Content(text=seed_text(name)), new_id())
        except Rejected as error:
            log.info("%s: no thread in %s: %s", self.name, parent_chat_id, error)
            return None
        await self._threads.join(seed.address.chat_id, seed.message_id)
        return seed.message_id

    async def close(self) -> None:
        """Let go of all connections."""
        await self._calls.close()
