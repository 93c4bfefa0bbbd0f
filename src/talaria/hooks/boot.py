"""Built-in boot hook: run the instructions of BOOT.md once after each gateway start."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path

from talaria.contracts.platform import Content
from talaria.contracts.store import Transaction
from talaria.core.errors import TalariaError
from talaria.core.events import TurnAnswered, TurnEnd
from talaria.core.ids import SessionId, new_id
from talaria.core.messages import SILENT, Message, Text
from talaria.hooks.discovery import BOOT, BOOT_FILE
from talaria.runtime.active_session import SessionOpener
from talaria.runtime.cross_posts import CrossPost, send_cross_post
from talaria.runtime.open_session import OpenRequest, SurfaceInfo
from talaria.runtime.runner import SessionRunner
from talaria.sessions.chat_directory import read_home

SOURCE = BOOT
_MAX_CHARACTERS = 50_000
_SURFACE = (
    "The gateway has just started. The message is your owner's file BOOT.md. Nobody is there to answer questions. Your"
    f" reply is sent to your owner's home chats; reply only {SILENT} if there is nothing to report."
)

log = logging.getLogger(__name__)


def read_boot(profile_folder: Path) -> str:
    """Return the text of BOOT.md; empty if the file is missing, unreadable or blank."""
    file = profile_folder / BOOT_FILE
    try:
        return file.read_text(encoding="utf-8-sig", errors="replace")[:_MAX_CHARACTERS].strip()
    except FileNotFoundError:
        return ""
    except OSError as error:
        log.warning("can't read %s: %s", file, error)
        return ""


class Boot:
    """Runner of one turn in its own session, with its reply sent to the home chats of ``platforms``."""

    def __init__(self, opener: SessionOpener, folder: Path, platforms: Sequence[str], jobs: asyncio.TaskGroup) -> None:
        self._opener = opener
        self._folder = folder
        self._platforms = platforms
        self._jobs = jobs

    async def run(self, text: str) -> bool:
        """Run a turn for the text, and return whether a report was queued; logs errors instead of raising."""
        try:
            session_id, end = await self._run_turn(text)
        except TalariaError as error:
            log.warning("couldn't run %s: %s", BOOT_FILE, error)
            return False
        except Exception:  # a bug here must not end the gateway
            log.exception("couldn't run %s", BOOT_FILE)
            return False
        if not isinstance(end, TurnAnswered):
            log.warning(
                "%s: the turn ended without an answer: %s", BOOT_FILE, getattr(end, "text", "") or "it was stopped"
            )
            return False
        if not end.text.strip() or end.text.lstrip().startswith(SILENT):
            return False
        return await self._report(session_id, end.text)

    async def _run_turn(self, text: str) -> tuple[SessionId, TurnEnd | None]:
        request = OpenRequest(
            surface=SurfaceInfo(source=SOURCE, folder=self._folder, instructions=_SURFACE, attended=False), titled=False
        )
        async with AsyncExitStack() as stack:
            chat = await self._opener.open_session(request, stack, self._jobs)
            message = Message(role="user", parts=(Text(text),), at=datetime.now(UTC))
            await chat.conversation.put(message, source=SOURCE, external_id=new_id())
            return chat.conversation.session_id, await _wait_for_end(chat.conversation)

    async def _report(self, session_id: SessionId, text: str) -> bool:
        platforms_told = await self._opener.store.write(lambda tx: self._queue_reports(tx, session_id, text))
        if not platforms_told:
            log.info("%s: there is no home chat to report to; send `/sethome` in the chat you want to use", BOOT_FILE)
        return bool(platforms_told)

    def _queue_reports(self, tx: Transaction, session_id: SessionId, text: str) -> list[str]:
        homes = {platform: home for platform in self._platforms if (home := read_home(tx, platform))}
        for platform, home in homes.items():
            cross_post = CrossPost(
                key=f"{SOURCE}:{session_id}:{platform}",
                address=home.address,
                content=Content(text=text),
                source=BOOT_FILE,
                at=datetime.now(UTC),
                sender=session_id,
            )
            send_cross_post(tx, cross_post)
        return list(homes)


async def _wait_for_end(conversation: SessionRunner) -> TurnEnd | None:
    """Wait for the end of the turn; on cancellation, stop it, as it would not be resumed."""
    try:
        return await conversation.wait_until_idle()
    except asyncio.CancelledError:
        if conversation.stop():
            await conversation.wait_until_idle()
        raise
