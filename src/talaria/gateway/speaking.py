"""Replies that are also spoken: made behind the written reply, which never waits for them."""

import asyncio
import logging
import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import ClassVar

import msgspec
from msgspec import Struct

from talaria.contracts.clock import Clock, SystemClock
from talaria.contracts.follower import Ending
from talaria.contracts.platform import Content, Platform
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.state import Entry
from talaria.contracts.voice import Recording, Speaker
from talaria.core.addresses import Address
from talaria.core.errors import StoreError, TalariaError
from talaria.core.events import TurnAnswered
from talaria.core.ids import SessionId, TurnId
from talaria.core.messages import File
from talaria.sessions.holding import let_go, take
from talaria.sessions.outgoing import queue_notice

_PREFIX = "speak:"
_STALE = timedelta(minutes=15)
_LOOK_AGAIN = timedelta(seconds=1)
_LONGEST = 4_000  # characters; about five minutes, and what providers take at once
_FENCE = re.compile(r"```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)", re.DOTALL)
_LINK = re.compile(r"!?\[([^\[\]]*)\]\([^()]*\)")
_MARKS = re.compile(r"[*_`#>|~]+|^[^\S\n]*[-+]\s+|https?://\S+", re.MULTILINE)

log = logging.getLogger(__name__)


class Manner(Struct, frozen=True):
    """Which replies are spoken, and how long that may take."""

    speak: str
    seconds: float


class Wanted(Struct, frozen=True, kw_only=True):
    """A reply that is to be spoken."""

    session_id: SessionId
    turn_id: TurnId
    address: Address
    text: str
    at: datetime


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Wanted).decode


class SpokenReplies:
    """Implements `Follower` for all conversations of one gateway: whoever is called first speaks what waits.

    ``find`` returns who speaks as the settings are now, ``media`` is where recordings are kept, and ``wake`` stirs the
    delivery of a network.
    """

    resumable: ClassVar = False

    def __init__(
        self,
        store: Store,
        platforms: Mapping[str, Platform],
        media: Path,
        find: Callable[[], Speaker | None],
        manner: Callable[[], Manner],
        wake: Callable[[str], None],
    ) -> None:
        self._store = store
        self._platforms = platforms
        self._media = media
        self._find = find
        self._manner = manner
        self._wake = wake
        self._clock: Clock = SystemClock()
        self._speaking: set[str] = set()
        self._noted: dict[str, datetime] = {}
        self._looked: datetime | None = None

    def turn_ended(self, tx: Transaction, ending: Ending) -> None:
        """Keep what is to be spoken, in the transaction that ends the turn."""
        route, speak = ending.route, self._manner().speak
        if route is None or not isinstance(ending.end, TurnAnswered):
            return
        if speak != "always" and not (speak == "voice-notes-only" and route.spoken):
            return
        platform, text = self._platforms.get(route.address.platform), in_speech(ending.end.text)
        if platform is not None and platform.abilities.file_limit and text:
            wanted = Wanted(
                session_id=ending.session_id,
                turn_id=ending.turn_id,
                address=route.address,
                text=text,
                at=self._clock.now(),
            )
            tx.state.put(f"{_PREFIX}{ending.turn_id}", _encode(wanted).decode())
            self._noted[f"{_PREFIX}{ending.turn_id}"] = wanted.at

    async def follow_up(self) -> bool:
        """Speak what waits; what fails is left out, as it stands there in writing."""
        if not self._is_due():
            return False
        for entry in await self._store.read(lambda tx: tx.state.with_prefix(_PREFIX)):
            if entry.key not in self._speaking:
                self._speaking.add(entry.key)
                try:
                    await self._see_to(entry)
                finally:
                    self._speaking.discard(entry.key)
                    self._noted.pop(entry.key, None)
        return False

    def _is_due(self) -> bool:
        """Tell whether to look: something of this process may wait, or, now and then, something that another left."""
        now = self._clock.now()
        for key, at in tuple(self._noted.items()):
            if now - at > _STALE:
                self._noted.pop(key, None)
        if self._noted:
            return True
        if self._looked is not None and now - self._looked < _LOOK_AGAIN:
            return False
        self._looked = now
        return True

    async def _see_to(self, entry: Entry) -> None:
        """Speak one reply, unless another worker does; in the end nothing waits, whatever became of it."""
        seconds = self._manner().seconds
        claim = timedelta(seconds=2 * seconds + 10)
        lease = await self._store.write(lambda tx: take(tx, entry.key, claim))
        if lease is None:
            return
        try:
            wanted = _decode(entry.value)
            fresh = self._clock.now() - wanted.at < _STALE
            file = await self._spoken(wanted, seconds) if fresh else None
            await self._store.write(lambda tx: _settle(tx, entry.key, wanted, file))
            self._wake(wanted.address.platform)
        finally:
            await asyncio.shield(let_go(self._store, lease))

    async def _spoken(self, wanted: Wanted, seconds: float) -> File | None:
        limit = self._platforms[wanted.address.platform].abilities.file_limit
        try:
            speaker = self._find()
            if speaker is None:
                return None
            async with asyncio.timeout(seconds):
                recording = await speaker.speak(wanted.text)
            if len(recording.data) > limit:
                log.warning(
                    "a reply was not spoken: it has %d bytes, and the network takes %d", len(recording.data), limit
                )
                return None
            return await asyncio.to_thread(_keep, recording, self._media / wanted.session_id / "spoken", wanted.turn_id)
        except StoreError:
            raise
        except (TalariaError, TimeoutError, OSError) as error:
            log.warning("a reply was not spoken: %s", str(error) or "it took too long")
            return None


def _settle(tx: Transaction, key: str, wanted: Wanted, file: File | None) -> None:
    if tx.state.delete(key) and file is not None:
        content = Content(files=(file,))
        queue_notice(tx, wanted.session_id, wanted.address, content, f"{wanted.turn_id}:voice")


def in_speech(text: str) -> str:
    """Return Markdown as words that can be spoken: without marks, addresses and code, and not endlessly."""
    words = _MARKS.sub(" ", _LINK.sub(r"\1", _FENCE.sub(" ", text)))
    lines = [" ".join(line.split()) for line in words.splitlines()]
    spoken = "\n".join(filter(None, lines))
    if len(spoken) <= _LONGEST:
        return spoken
    return spoken[:_LONGEST].rpartition(" ")[0] + " …"


def _keep(recording: Recording, folder: Path, name: str) -> File:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.ogg"
    file.write_bytes(recording.data)
    return File(str(file), "voice.ogg", recording.media_type)
