"""`/handoff` in the terminal, `/move` in a chat: let the conversation go on in another chat, at once if need be."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta

from msgspec import Struct

from talaria.commands.command import Command, Errand, Screen
from talaria.commands.conversations import handle_of
from talaria.contracts.store import Transaction
from talaria.contracts.stores.handoffs import HandoffState, HandoffStatus
from talaria.core.errors import Refused, TalariaError
from talaria.core.ids import SessionId
from talaria.sessions.channels import find_target
from talaria.sessions.homes import HANDOFFS, gateway_alive, read_home
from talaria.sessions.relocation import request_move

_NOW = "--now"
_SEEN_THERE = (
    "The rest of the answer is seen there. This terminal ends when the turn does; Ctrl-C leaves at once, and the"
    " gateway then asks the model again for what breaks off."
)
_NEVER = HandoffState(state="failed", platform=None, error="the conversation is not there any more")


class Handoff:
    """Asks for the move and waits until it is done, ``patience`` at the most; looks every ``pause``."""

    def __init__(
        self,
        *,
        patience: timedelta = timedelta(seconds=60),
        pause: timedelta = timedelta(milliseconds=100),
        remark: timedelta = timedelta(seconds=10),
    ) -> None:
        self._patience = patience.total_seconds()
        self._pause = pause.total_seconds()
        self._remark = remark.total_seconds()

    @property
    def command(self) -> Command:
        """The command that does it."""
        return Command(
            name="handoff",
            category="Session",
            help="Let this conversation go on in a chat: telegram, discord, …",
            hint="[--now] <platform>[:chat]",
            where="terminal",
            run=self.run,
            offers=offers,
        )

    @property
    def from_chats(self) -> Command:
        """The same for those who are in a chat already."""
        return Command(
            name="move",
            category="Session",
            help="Let this conversation go on in another chat.",
            hint="[--now] <platform>[:chat]",
            where="chat",
            who="owner",
            run=self.run,
            offers=offers,
        )

    async def run(self, errand: Errand) -> None:
        """Hand the conversation over and leave, or say why it stays here."""
        wanted = _read(errand.words)
        seat, moved = errand.seat, errand.seat.session_id
        _refuse_unknown(errand, wanted.platform)
        await seat.store.write(lambda tx: _request(tx, errand, wanted))
        seat.departing = True
        try:
            await seat.store.hint(HANDOFFS)
            errand.place.show(f"Handing over to {wanted.platform} …")
            end = await self._wait(errand, moved, at_once=wanted.at_once)
        except asyncio.CancelledError:
            seat.departing = False
            await asyncio.shield(_withdraw(errand, moved, "whoever asked for it gave up"))
            raise
        if end["state"] != "completed":
            seat.departing = False
            raise Refused(f"The conversation stays here: {end['error'] or 'it could not be handed over'}.")
        if errand.screen is not None:
            await _leave(errand, errand.screen, wanted)
        elif not seat.busy:  # else the turn goes on here, and is seen there
            await seat.begin_anew(behind=moved)

    async def _wait(self, errand: Errand, moved: SessionId, *, at_once: bool) -> HandoffState:
        """Return how it ended, whatever has begun here since; a request that nobody fulfils in time is withdrawn."""
        pause = self._pause / 5 if at_once else self._pause
        loop = asyncio.get_running_loop()
        begun = told = loop.time()
        before: HandoffStatus | None = "pending"
        while (waited := loop.time() - begun) < self._patience:
            now = await _state(errand, moved)
            if now["state"] in ("completed", "failed"):
                return now
            if now["state"] != before:
                errand.place.show("A gateway has taken it and is moving it …")
                before = now["state"]
            elif loop.time() - told >= self._remark:
                errand.place.show(f"Still waiting ({waited:.0f} of {self._patience:.0f} s) …")
                told = loop.time()
            await asyncio.sleep(pause)
        await _withdraw(errand, moved, f"no gateway was done with it within {self._patience:g} s")
        return await _state(errand, moved)


async def offers(errand: Errand) -> Sequence[tuple[str, str]]:
    """Return the networks that are configured."""
    found = [(name, "configured") for name, configured in errand.house.platforms.items() if configured]
    if errand.words.startswith(_NOW):
        return [(f"{_NOW} {name}", about) for name, about in found]
    return [*found, (_NOW, "in the middle of the turn, as it is")]


class _Wanted(Struct, frozen=True):
    """Where to, as it was typed, and whether at once."""

    target: str
    at_once: bool

    @property
    def platform(self) -> str:
        return self.target.partition(":")[0].strip().lower()


def _read(words: str) -> _Wanted:
    """Return what the words behind the command mean."""
    first, _, rest = words.partition(" ")
    return _Wanted(rest.strip(), at_once=True) if first == _NOW else _Wanted(words, at_once=False)


async def _leave(errand: Errand, screen: Screen, wanted: _Wanted) -> None:
    """Say where the conversation is now, and end the program when nothing is left to do for it here."""
    seat = errand.seat
    farewell = await seat.store.read(lambda tx: _farewell(tx, errand, wanted.platform))
    if seat.busy:
        screen.hush()
        errand.place.show(f"{farewell} {_SEEN_THERE}")
        with suppress(TalariaError):
            await seat.chat.conversation.settled()
    else:
        errand.place.show(farewell)
    screen.leave()


def _refuse_unknown(errand: Errand, platform: str) -> None:
    platforms = errand.house.platforms
    known = ", ".join(platforms)
    if not platform:
        raise Refused(f"Where to? `/handoff <platform>`, with one of {known}.")
    if platform not in platforms:
        raise Refused(f"There is no platform `{platform}`; there are {known}.")
    if not platforms[platform]:
        raise Refused(f"{platform.capitalize()} is not configured yet: `talaria setup` does that.")


def _request(tx: Transaction, errand: Errand, wanted: _Wanted) -> None:
    """Ask for it, or raise `Refused` with what is in the way and what to do about it."""
    session_id = errand.seat.session_id
    if ":" in wanted.target:
        to = find_target(tx, wanted.target, list(errand.house.platforms))
    elif home := read_home(tx, wanted.platform):
        to = home.address
    else:
        raise Refused(
            f"No home channel is set on {wanted.platform}: type `/sethome` in the chat there that is to be it."
        )
    running = errand.seat.busy or tx.turns.find(session_id, running=True, limit=1)
    if running and not wanted.at_once:
        raise Refused(
            "A turn is running: wait for its end or stop it (`/stop`), then hand over. With `--now` it goes along."
        )
    if not gateway_alive(tx):
        raise Refused("No gateway is running that could take it: start one with `talaria gateway`.")
    request_move(tx, session_id, to, at_once=wanted.at_once)


async def _state(errand: Errand, session_id: SessionId) -> HandoffState:
    return await errand.seat.store.read(lambda tx: tx.handoffs.get_handoff_state(session_id)) or _NEVER


async def _withdraw(errand: Errand, session_id: SessionId, reason: str) -> None:
    """Take the request back, unless it came to an end meanwhile."""
    await errand.seat.store.write(lambda tx: tx.handoffs.withdraw_handoff(session_id, reason))


def _farewell(tx: Transaction, errand: Errand, platform: str) -> str:
    session = tx.sessions.get(errand.seat.session_id)
    home = read_home(tx, platform)
    places = [binding.address for binding in tx.bindings.of_session(errand.seat.session_id)]
    thread = any(place.platform == platform and place.thread_id for place in places)
    there = home is not None and any(place.chat_id == home.address.chat_id for place in places)
    where = f"{platform}, in {home.called}" if home and there else platform
    handle = handle_of(tx, session) if session else errand.seat.session_id
    return (
        f"The conversation lives on {where}{' (a thread of its own)' if thread else ''} now."
        f" `/resume {handle}` brings it back."
    )


COMMAND, MOVE = Handoff().command, Handoff().from_chats
