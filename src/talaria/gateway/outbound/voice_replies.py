"""Voice replies: recordings made after the written reply, which never waits for them."""

import asyncio
import logging
import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from msgspec import Struct

from talaria.contracts.clock import Clock, SystemClock
from talaria.contracts.platform import Content, Platform
from talaria.contracts.provider import Recording, Speaker
from talaria.contracts.store import Store, Transaction
from talaria.contracts.turns import AfterCommit, TurnResult
from talaria.contracts.values import SessionValue
from talaria.core.addresses import Address, ReplyRoute
from talaria.core.errors import StoreError, TalariaError
from talaria.core.events import TurnAnswered
from talaria.core.ids import SessionId, TurnId
from talaria.core.messages import SILENT, File
from talaria.runtime.outbox import queue_notice
from talaria.runtime.workers import release_lease, take_lease
from talaria.sessions.chat_directory import read_voice_choice
from talaria.settings.model import LiveSettings

_MAX_AGE = timedelta(minutes=15)
_POLL_INTERVAL = timedelta(seconds=1)
_MAX_CHARACTERS = 4_000  # characters; about five minutes of speech, and accepted by providers in one request
_SUFFIXES = {"audio/wav": ".wav", "audio/mpeg": ".mp3"}
_FENCE = re.compile(r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)", re.DOTALL)
_LINK = re.compile(r"!?\[([^\[\]]*)\]\([^()]*\)")
_MARKS = re.compile(r"[*_`#>|~]+|^[^\S\n]*[-+]\s+|https?://\S+", re.MULTILINE)

log = logging.getLogger(__name__)


class PendingVoiceReply(Struct, frozen=True, kw_only=True):
    """Stored reply that is to be spoken."""

    session_id: SessionId
    turn_id: TurnId
    address: Address
    text: str
    at: datetime


VOICE_REPLY = SessionValue("voice_reply", PendingVoiceReply)  # by turn


class VoiceReplies:
    """Recordings of the replies of all sessions of one gateway; the first follow-up speaks all pending replies.

    ``find`` returns the configured speaker, ``media`` is the folder for recordings.
    """

    def __init__(
        self,
        store: Store,
        platforms: Mapping[str, Platform],
        media: Path,
        find: Callable[[], Speaker | None],
        settings: LiveSettings,
    ) -> None:
        self._store = store
        self._platforms = platforms
        self._media = media
        self._find_speaker = find
        self._settings = settings
        self._clock: Clock = SystemClock()
        self._speaking: set[str] = set()
        self._queued_at: dict[str, datetime] = {}
        self._polled_at: datetime | None = None

    def turn_ended(self, tx: Transaction, ending: TurnResult) -> AfterCommit | None:
        """Store a reply that is to be spoken, in the transaction that ends the turn."""
        route = ending.route
        if route is None or not isinstance(ending.end, TurnAnswered) or not self._is_spoken(tx, route):
            return None
        platform, text = self._platforms.get(route.address.platform), to_speech_text(ending.end.text)
        if platform is not None and platform.abilities.file_limit and text and ending.end.text.strip() != SILENT:
            pending = PendingVoiceReply(
                session_id=ending.session_id,
                turn_id=ending.turn_id,
                address=route.address,
                text=text,
                at=self._clock.now(),
            )
            VOICE_REPLY.write(tx, ending.session_id, pending, ending.turn_id)
            return partial(self._remember, ending.turn_id, pending.at)
        return None

    def _is_spoken(self, tx: Transaction, route: ReplyRoute) -> bool:
        """Return whether a reply is to be spoken: as its chat has chosen with `/voice`, or else by the setting."""
        speak, chosen = self._settings.current.voice.speak, read_voice_choice(tx, route.address)
        if chosen is not None:
            return chosen
        return speak == "always" or (speak == "voice-notes-only" and route.spoken)

    def _remember(self, turn_id: str, at: datetime) -> None:
        """Note a stored reply, so that the next follow-up looks for it."""
        self._queued_at[turn_id] = at

    async def follow_up(self) -> None:
        """Speak the pending replies; failures are only logged, as the written reply has been sent."""
        if not self._is_due():
            return
        for _, turn_id, pending in await self._store.read(VOICE_REPLY.of_all):
            if turn_id not in self._speaking:
                self._speaking.add(turn_id)
                try:
                    await self._process(pending)
                finally:
                    self._speaking.discard(turn_id)
                    self._queued_at.pop(turn_id, None)

    def _is_due(self) -> bool:
        """Return whether to check the store: replies of this process are pending, or the interval has passed."""
        now = self._clock.now()
        for key, at in tuple(self._queued_at.items()):
            if now - at > _MAX_AGE:
                self._queued_at.pop(key, None)
        if self._queued_at:
            return True
        if self._polled_at is not None and now - self._polled_at < _POLL_INTERVAL:
            return False
        self._polled_at = now
        return True

    async def _process(self, pending: PendingVoiceReply) -> None:
        """Speak one reply, unless another worker does, and remove it from the store even if speaking fails."""
        seconds = self._settings.current.voice.seconds
        claim = timedelta(seconds=2 * seconds + 10)
        lease = await take_lease(self._store, f"speak:{pending.turn_id}", claim)
        if lease is None:
            return
        try:
            fresh = self._clock.now() - pending.at < _MAX_AGE
            file = await self._record_speech(pending, seconds) if fresh else None
            await self._store.write(lambda tx: _queue_recording(tx, pending, file))
        finally:
            await asyncio.shield(release_lease(self._store, lease))

    async def _record_speech(self, pending: PendingVoiceReply, seconds: float) -> File | None:
        limit = self._platforms[pending.address.platform].abilities.file_limit
        try:
            speaker = self._find_speaker()
            if speaker is None:
                return None
            async with asyncio.timeout(seconds):
                recording = await speaker.speak(pending.text)
            if len(recording.data) > limit:
                log.warning("no voice reply: it has %d bytes and the network's limit is %d", len(recording.data), limit)
                return None
            return await asyncio.to_thread(
                _save_recording, recording, self._media / pending.session_id / "spoken", pending.turn_id
            )
        except StoreError:
            raise
        except (TalariaError, TimeoutError, OSError) as error:
            log.warning("no voice reply: %s", str(error) or "it took too long")
            return None


def _queue_recording(tx: Transaction, pending: PendingVoiceReply, file: File | None) -> None:
    if VOICE_REPLY.delete(tx, pending.session_id, pending.turn_id) and file is not None:
        content = Content(files=(file,))
        queue_notice(tx, pending.session_id, pending.address, content, f"{pending.turn_id}:voice")


def to_speech_text(text: str) -> str:
    """Return Markdown as plain text for speech: without markup, URLs and code, and shortened."""
    plain = _MARKS.sub(" ", _LINK.sub(r"\1", _FENCE.sub(" ", text)))
    lines = [" ".join(line.split()) for line in plain.splitlines()]
    spoken = "\n".join(filter(None, lines))
    if len(spoken) <= _MAX_CHARACTERS:
        return spoken
    return spoken[:_MAX_CHARACTERS].rpartition(" ")[0] + " …"


def _save_recording(recording: Recording, folder: Path, name: str) -> File:
    folder.mkdir(parents=True, exist_ok=True)
    suffix = _SUFFIXES.get(recording.media_type, ".ogg")
    file = folder / f"{name}{suffix}"
    file.write_bytes(recording.data)
    return File(str(file), f"voice{suffix}", recording.media_type)
