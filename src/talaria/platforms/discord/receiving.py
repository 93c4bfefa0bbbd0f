"""Everything that happens on Discord, once and in order: over connections that break, and sessions that end."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from datetime import timedelta

import msgspec
from msgspec import Struct, structs

from talaria.core.errors import Rejected, StoreError, Unreachable
from talaria.platforms.discord.calls import Calls
from talaria.platforms.discord.failures import pause
from talaria.platforms.discord.keeping import Login, Progress, Shelf
from talaria.platforms.discord.line import Line, Lost
from talaria.platforms.discord.settings import DiscordSettings
from talaria.platforms.discord.wire import Frame

_ATTEMPTS = 3
_MISSED_AT_MOST = 100
_SAVING = timedelta(seconds=1)
_BEGINNINGS = frozenset({"READY", "RESUMED"})

log = logging.getLogger(__name__)


class Event(Struct, frozen=True):
    """Something that happened; ``fetched`` says that it was asked for later, and its place has to be, too."""

    id: str
    name: str
    data: msgspec.Raw
    sequence: int = 0
    fetched: bool = False


class _Ready(Struct):
    session_id: str
    resume_gateway_url: str


class Receiver:
    """One account's events. An event counts as taken when the next one is asked for."""

    def __init__(self, calls: Calls, settings: DiscordSettings, shelf: Shelf) -> None:
        self._calls = calls
        self._settings = settings
        self._shelf = shelf
        self._progress = Progress()
        self._line: Line | None = None
        self._fresh: Login | None = None  # kept once all that was missed before it has been taken
        self._missed: list[Event] = []
        self._saved = 0.0

    async def begin(self) -> None:
        """Go on with the session of last time, or begin one and look after what was missed."""
        self._progress = await self._shelf.load()
        await self._enter()

    async def events(self) -> AsyncGenerator[Event, None]:
        """Yield what happens; a connection that breaks is made anew once, and the session gone on with."""
        while True:
            while self._missed:
                yield self._missed[0]
                self._missed.pop(0)
            await self._adopt()
            assert self._line is not None
            while self._line.arrived:
                frame = self._line.arrived.popleft()
                yield Event(f"{self._line.session_id}:{frame.s}", frame.t or "", frame.d, frame.s or 0)
                await self._confirm(frame.s or 0)
            try:
                await self._line.follow()
            except Lost as lost:
                log.info("discord: %s", lost)
                await self._line.part()
                await self._enter()

    def note(self, channel: str, message: str, *, ours: bool) -> None:
        """Remember how far a place was read, if we talk there."""
        if message and (ours or channel in self._progress.seen):
            self._progress = structs.replace(self._progress, seen=self._progress.reading(channel, message))

    async def part(self) -> None:
        """Hang up, and keep how far everything was taken."""
        if self._line is not None:
            await self._line.part()
        await self._save()

    async def _enter(self) -> None:
        """Connect: by the address of the session, then by the common one, then with a session of its own."""
        login = self._progress.login
        for _ in range(_ATTEMPTS):
            login = login or Login(await self._gateway())
            try:
                self._line = await Line.dial(self._calls, self._settings, login)
                await self._until_ready(self._line)
            except (Lost, Unreachable) as error:
                if self._line is not None:
                    await self._line.part()
                log.info("discord: %s", error)
                login = await self._other(login, error)
            else:
                return
        raise Unreachable("Discord begins no session")

    async def _other(self, login: Login, error: Lost | Unreachable) -> Login | None:
        """Return what to try in place of a login that failed; raise what it failed with where there is nothing."""
        if isinstance(error, Lost) and not error.resume:
            return None
        common = await self._gateway()
        if not login.session or login.url == common:
            raise Unreachable(str(error)) from error
        return structs.replace(login, url=common)

    async def _until_ready(self, line: Line) -> None:
        seconds = self._settings.patience.total_seconds()
        while (frame := _beginning(line)) is None:
            await line.follow(seconds)
        if frame.t == "READY":
            ready = msgspec.json.decode(frame.d, type=_Ready)
            self._missed = await self._catch_up()
            self._fresh = Login(ready.resume_gateway_url, ready.session_id, frame.s or 0)
            if not self._missed:
                await self._adopt()

    async def _adopt(self) -> None:
        """Go on with a new session from now on."""
        if self._fresh is not None:
            self._progress = structs.replace(self._progress, login=self._fresh)
            self._fresh = None
            await self._save()

    async def _gateway(self) -> str:
        _, url, limit = await self._calls.ask(lambda api: api.get_bot_gateway())
        if limit["remaining"] <= 0:
            raise pause(limit["reset_after"] / 1000, everywhere=True)
        return url

    async def _catch_up(self) -> list[Event]:
        """Return what was said since in the places where we talk: a session that ended does not tell."""
        found: dict[int, Event] = {}
        for channel, last in self._progress.seen.items():
            try:
                messages = await self._calls.ask(
                    lambda api, channel=channel, last=last: api.logs_from(channel, _MISSED_AT_MOST, after=last)  # type: ignore[misc]
                )
            except Rejected as error:
                log.info("discord: what was missed in %s cannot be read: %s", channel, error)
                continue
            for one in messages:
                data = msgspec.Raw(msgspec.json.encode(one))
                found[int(one["id"])] = Event(one["id"], "MESSAGE_CREATE", data, fetched=True)
        return [event for _, event in sorted(found.items())]

    async def _confirm(self, sequence: int) -> None:
        if self._progress.login is not None:
            login = structs.replace(self._progress.login, sequence=sequence)
            self._progress = structs.replace(self._progress, login=login)
        if asyncio.get_running_loop().time() - self._saved > _SAVING.total_seconds():
            await self._save()

    async def _save(self) -> None:
        """Keep where we are; what comes again because that was not written is recognised."""
        self._saved = asyncio.get_running_loop().time()
        try:
            await self._shelf.save(self._progress)
        except StoreError as error:
            log.warning("discord: how far it was read was not written: %s", error)


def _beginning(line: Line) -> Frame | None:
    return next((frame for frame in line.arrived if frame.t in _BEGINNINGS), None)
