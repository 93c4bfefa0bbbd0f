"""The hook that is built in: what BOOT.md asks for, done once each time a gateway has started."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path

from talaria.contracts.platform import Content
from talaria.contracts.store import Transaction
from talaria.core.errors import TalariaError
from talaria.core.events import TurnAnswered, TurnEnd, TurnEvent
from talaria.core.ids import SessionId, new_id
from talaria.core.messages import Message, Text
from talaria.hooks.shelf import BOOT, BOOT_FILE
from talaria.sessions.chat import ChatWish
from talaria.sessions.conversation import Conversation
from talaria.sessions.homes import read_home
from talaria.sessions.seat import ChatOpener
from talaria.sessions.sending import Parcel, send_parcel

SOURCE = BOOT
SILENT = "[SILENT]"
_MOST_CHARACTERS = 50_000
_SURFACE = (
    "The gateway has just started, and what you read is the file BOOT.md of your owner. Nobody is there to answer"
    f" questions. Your reply is sent to your owner's home chats; reply {SILENT} alone if there is nothing to tell."
)

log = logging.getLogger(__name__)


def read_boot(profile_folder: Path) -> str:
    """Return what BOOT.md asks for; empty where there is no such file, or nothing in it."""
    file = profile_folder / BOOT_FILE
    try:
        return file.read_text(encoding="utf-8-sig", errors="replace")[:_MOST_CHARACTERS].strip()
    except FileNotFoundError:
        return ""
    except OSError as error:
        log.warning("%s cannot be read: %s", file, error)
        return ""


class Boot:
    """Takes one turn in a conversation of its own, and tells the home channels of ``platforms`` what came of it."""

    def __init__(self, opener: ChatOpener, folder: Path, platforms: Sequence[str], jobs: asyncio.TaskGroup) -> None:
        self._opener = opener
        self._folder = folder
        self._platforms = platforms
        self._jobs = jobs

    async def run(self, text: str) -> bool:
        """Do what the text asks for, and return whether something waits in the outbox now; nothing is raised."""
        try:
            session_id, end = await self._turn(text)
        except TalariaError as error:
            log.warning("%s was not done: %s", BOOT_FILE, error)
            return False
        except Exception:  # a bug here must not end the gateway
            log.exception("%s was not done", BOOT_FILE)
            return False
        if not isinstance(end, TurnAnswered):
            log.warning("%s: the turn had no answer: %s", BOOT_FILE, getattr(end, "text", "") or "it was stopped")
            return False
        if not end.text.strip() or end.text.lstrip().startswith(SILENT):
            return False
        return await self._tell(session_id, end.text)

    async def _turn(self, text: str) -> tuple[SessionId, TurnEnd | None]:
        wish = ChatWish(source=SOURCE, folder=self._folder, surface=_SURFACE, titled=False, attended=False)
        async with AsyncExitStack() as stack:
            chat = await self._opener.open_chat(wish, _unheard, stack, self._jobs)
            message = Message(role="user", parts=(Text(text),), at=datetime.now(UTC))
            await chat.conversation.put(message, source=SOURCE, external_id=new_id())
            return chat.conversation.session_id, await _end_of(chat.conversation)

    async def _tell(self, session_id: SessionId, text: str) -> bool:
        told = await self._opener.store.write(lambda tx: self._send(tx, session_id, text))
        if not told:
            log.info("%s: there is no home channel to tell of it; `/sethome` in a chat makes it one", BOOT_FILE)
        return bool(told)

    def _send(self, tx: Transaction, session_id: SessionId, text: str) -> list[str]:
        homes = {platform: home for platform in self._platforms if (home := read_home(tx, platform))}
        for platform, home in homes.items():
            parcel = Parcel(
                key=f"{SOURCE}:{session_id}:{platform}",
                address=home.address,
                content=Content(text=text),
                source=BOOT_FILE,
                at=datetime.now(UTC),
                sender=session_id,
            )
            send_parcel(tx, parcel)
        return list(homes)


async def _end_of(conversation: Conversation) -> TurnEnd | None:
    """Wait for the end of the turn; where the gateway ends first it is stopped, since nobody would go on with it."""
    try:
        return await conversation.settled()
    except asyncio.CancelledError:
        if conversation.stop():
            await conversation.settled()
        raise


def _unheard(event: TurnEvent) -> None:
    """Let the steps of the turn pass: only its end is told."""
