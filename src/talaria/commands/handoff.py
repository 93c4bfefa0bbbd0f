"""`/handoff` in the terminal, `/move` in a chat: take the conversation to another chat, at once if need be."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta

from msgspec import Struct

from talaria.commands.command import Command, Errand, Screen
from talaria.contracts.store import Transaction
from talaria.contracts.stores.handoffs import REQUEST_LIFE, HandoffState, HandoffStatus
from talaria.core.errors import Refused, TalariaError
from talaria.core.ids import SessionId
from talaria.core.wording import platform_label
from talaria.sessions.channels import find_target, place_label
from talaria.sessions.departure import cancel_handoff
from talaria.sessions.homes import HANDOFFS, gateway_alive, read_home
from talaria.sessions.relocation import request_move

_NOW = "--now"
_CANCEL = "cancel"
_SEEN_THERE = (
    "The rest of the answer is seen there. This terminal ends when the turn does; Ctrl-C leaves at once, and the"
    " gateway then asks the model again for what breaks off."
)
_NEVER = HandoffState(state="failed", platform=None, error="the conversation was deleted")


class Handoff:
    """Requests the handoff and waits until it is done, ``patience`` at the most; looks every ``pause``."""

    def __init__(
        self,
        *,
        patience: timedelta = REQUEST_LIFE,
        pause: timedelta = timedelta(milliseconds=100),
        remark: timedelta = timedelta(seconds=10),
    ) -> None:
        self._patience = patience.total_seconds()
        self._pause = pause.total_seconds()
        self._remark = remark.total_seconds()

    @property
    def command(self) -> Command:
        """The command for the terminal."""
        return Command(
            name="handoff",
            category="Session",
            help="Move this conversation to a chat: telegram, discord, …",
            hint="[--now] <platform>[:chat] | cancel",
            where="terminal",
            instead_of=("move",),
            run=self.run,
            offers=offers,
        )

    @property
    def from_chats(self) -> Command:
        """The same for chats."""
        return Command(
            name="move",
            category="Session",
            help="Move this conversation to another chat.",
            hint="[--now] <platform>[:chat] | cancel",
            where="chat",
            who="owner",
            instead_of=("handoff",),
            run=self.run,
            offers=offers,
        )

    async def run(self, errand: Errand) -> None:
        """Hand the conversation over and leave, or say why it stays here."""
        if errand.words.strip().lower() == _CANCEL:
            await _cancel(errand)
            return
        wanted = _read(errand.words)
        seat, moved = errand.seat, errand.seat.session_id
        _refuse_unknown(errand, wanted.platform)
        end = await self._handed_over(errand, wanted)
        if end["state"] != "completed":
            raise Refused(f"The conversation stays here: {end['error'] or 'it could not be handed over'}.")
        if errand.screen is not None:
            await _leave(errand, errand.screen, moved)
            return
        if not seat.busy:  # else the turn continues here, and is shown there
            await seat.begin_anew(behind=moved)
        seat.departure.end(None, stays=False)

    async def _handed_over(self, errand: Errand, wanted: "_Wanted") -> HandoffState:
        """Request it and return how it ended; whoever stops waiting withdraws the request.

        From before the request to its end no new turn begins here, so each message is answered at one place.
        """
        seat, moved = errand.seat, errand.seat.session_id
        end = _NEVER
        running = seat.busy
        seat.departure.begin(seat.chat.conversation, wanted.platform)
        try:
            await seat.store.write(lambda tx: _request(tx, errand, wanted, running=running))
            await seat.store.hint(HANDOFFS)
            errand.place.show(f"Handing over to {platform_label(wanted.platform)} …")
            end = await self._wait(errand, moved, at_once=wanted.at_once)
        except asyncio.CancelledError:
            await asyncio.shield(cancel_handoff(seat.store, moved, "it was cancelled"))
            raise
        finally:
            if end["state"] != "completed":
                seat.departure.end(seat.chat.conversation if seat.is_open else None, stays=True)
        return end

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
        await cancel_handoff(errand.seat.store, moved, f"no gateway was done with it within {self._patience:g} s")
        return await _state(errand, moved)


async def _cancel(errand: Errand) -> None:
    seat = errand.seat
    if not await cancel_handoff(seat.store, seat.session_id, "you cancelled it"):
        errand.place.show("No handoff is under way.")
    elif seat.departure.session_id is None:  # else the command that waits for it says so
        errand.place.show("The handoff is cancelled. The conversation stays where it is.")


async def offers(errand: Errand) -> Sequence[tuple[str, str]]:
    """Return the networks that are configured."""
    found = [(name, "configured") for name, configured in errand.house.platforms.items() if configured]
    if errand.words.startswith(_NOW):
        return [(f"{_NOW} {name}", about) for name, about in found]
    return [*found, (_NOW, "in the middle of the turn, as it is"), (_CANCEL, "withdraw the request")]


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


async def _leave(errand: Errand, screen: Screen, moved: SessionId) -> None:
    """Show where the conversation is now, and end the program when nothing is left to do for it here."""
    seat = errand.seat
    farewell = await seat.store.read(lambda tx: _farewell(tx, moved))
    if seat.session_id != moved:  # another one has been opened here meanwhile
        seat.departure.end(None, stays=False)
        errand.place.show(farewell)
        return
    if seat.busy:
        screen.hush()
        errand.place.show(f"{farewell}\n\n{_SEEN_THERE}")
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
        raise Refused(f"{platform_label(platform)} is not configured yet. `talaria setup` does that.")


def _request(tx: Transaction, errand: Errand, wanted: _Wanted, *, running: bool) -> None:
    """Request it, or raise `Refused` with what is in the way and what to do about it."""
    session_id = errand.seat.session_id
    if ":" in wanted.target:
        to = find_target(tx, wanted.target, list(errand.house.platforms))
    elif home := read_home(tx, wanted.platform):
        to = home.address
    else:
        sethome = errand.house.platforms.typed_command(wanted.platform, "sethome")
        raise Refused(
            f"{platform_label(wanted.platform)} has no home chat yet. Send `{sethome}` in the chat you want to use."
        )
    if (running or tx.turns.find(session_id, running=True, limit=1)) and not wanted.at_once:
        raise Refused(
            "A turn is running. Wait for its end or stop it (`/stop`), then hand over; `--now` takes it along."
        )
    if not gateway_alive(tx):
        raise Refused("No gateway is running that could take it: start one with `talaria gateway start`.")
    request_move(tx, session_id, to, at_once=wanted.at_once)


async def _state(errand: Errand, session_id: SessionId) -> HandoffState:
    return await errand.seat.store.read(lambda tx: tx.handoffs.get_handoff_state(session_id)) or _NEVER


def _farewell(tx: Transaction, session_id: SessionId) -> str:
    """Return where a conversation is now and how to come back, from a shell and from a chat."""
    state = tx.handoffs.get_handoff_state(session_id)
    where = platform_label((state["platform"] if state else None) or "another chat")
    for binding in tx.bindings.of_session(session_id)[:1]:
        where = place_label(tx, binding.address)
    return (
        f"This conversation has moved to {where}.\n\nTo come back, run `talaria chat -r {session_id}` in a shell, or"
        f" send `/resume {session_id}` in a chat."
    )


COMMAND, MOVE = Handoff().command, Handoff().from_chats
