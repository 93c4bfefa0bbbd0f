"""`/handoff`: let the conversation go on in a chat."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from talaria.commands.command import Command, Errand
from talaria.commands.conversations import handle_of
from talaria.contracts.store import Transaction
from talaria.contracts.stores.handoffs import HandoffState, HandoffStatus
from talaria.core.errors import Refused
from talaria.sessions.homes import HANDOFFS, gateway_alive, read_home

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
            hint="<platform>",
            where="terminal",
            run=self.run,
            offers=offers,
        )

    async def run(self, errand: Errand) -> None:
        """Hand the conversation over and leave, or say why it stays here."""
        platform = errand.words.lower()
        seat, session_id = errand.seat, errand.seat.session_id
        _refuse_unknown(errand, platform)
        await seat.store.read(lambda tx: _refuse(tx, errand, platform))
        if not await seat.store.write(lambda tx: tx.handoffs.request_handoff(session_id, platform)):
            raise Refused("This conversation is being handed over already: wait for that to end.")
        await seat.store.hint(HANDOFFS)
        errand.place.show(f"Handing over to {platform} …")
        try:
            end = await self._wait(errand)
        except asyncio.CancelledError:
            await asyncio.shield(_withdraw(errand, "whoever asked for it gave up"))
            raise
        if end["state"] != "completed":
            raise Refused(f"The conversation stays here: {end['error'] or 'it could not be handed over'}.")
        errand.place.show(await seat.store.read(lambda tx: _farewell(tx, errand, platform)))
        if errand.screen is not None:
            errand.screen.leave()

    async def _wait(self, errand: Errand) -> HandoffState:
        """Return how it ended; a request that nobody fulfils in time is withdrawn."""
        loop = asyncio.get_running_loop()
        begun = told = loop.time()
        before: HandoffStatus | None = "pending"
        while (waited := loop.time() - begun) < self._patience:
            now = await _state(errand)
            if now["state"] in ("completed", "failed"):
                return now
            if now["state"] != before:
                errand.place.show("A gateway has taken it and is moving it …")
                before = now["state"]
            elif loop.time() - told >= self._remark:
                errand.place.show(f"Still waiting ({waited:.0f} of {self._patience:.0f} s) …")
                told = loop.time()
            await asyncio.sleep(self._pause)
        await _withdraw(errand, f"no gateway was done with it within {self._patience:g} s")
        return await _state(errand)


async def offers(errand: Errand) -> Sequence[tuple[str, str]]:
    """Return the networks that are configured."""
    return [(name, "configured") for name, configured in errand.house.platforms.items() if configured]


def _refuse_unknown(errand: Errand, platform: str) -> None:
    platforms = errand.house.platforms
    known = ", ".join(platforms)
    if not platform:
        raise Refused(f"Where to? `/handoff <platform>`, with one of {known}.")
    if platform not in platforms:
        raise Refused(f"There is no platform `{platform}`; there are {known}.")
    if not platforms[platform]:
        raise Refused(f"{platform.capitalize()} is not configured yet: `talaria setup` does that.")


def _refuse(tx: Transaction, errand: Errand, platform: str) -> None:
    if read_home(tx, platform) is None:
        raise Refused(f"No home channel is set on {platform}: type `/sethome` in the chat there that is to be it.")
    if errand.seat.busy or tx.turns.find(errand.seat.session_id, running=True, limit=1):
        raise Refused("A turn is running: wait for its end or stop it (`/stop`), then hand over.")
    if not gateway_alive(tx):
        raise Refused("No gateway is running that could take it: start one with `talaria gateway`.")


async def _state(errand: Errand) -> HandoffState:
    session_id = errand.seat.session_id
    return await errand.seat.store.read(lambda tx: tx.handoffs.get_handoff_state(session_id)) or _NEVER


async def _withdraw(errand: Errand, reason: str) -> None:
    """Take the request back, unless it came to an end meanwhile."""
    session_id = errand.seat.session_id
    await errand.seat.store.write(lambda tx: tx.handoffs.withdraw_handoff(session_id, reason))


def _farewell(tx: Transaction, errand: Errand, platform: str) -> str:
    session = tx.sessions.get(errand.seat.session_id)
    home = read_home(tx, platform)
    places = [binding.address for binding in tx.bindings.of_session(errand.seat.session_id)]
    thread = any(place.platform == platform and place.thread_id for place in places)
    where = f"{platform}, in {home.called}" if home else platform
    handle = handle_of(tx, session) if session else errand.seat.session_id
    return (
        f"The conversation lives on {where}{' (a thread of its own)' if thread else ''} now."
        f" `/resume {handle}` brings it back."
    )


COMMAND = Handoff().command
