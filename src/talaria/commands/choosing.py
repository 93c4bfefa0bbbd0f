"""Choose something for one conversation alone, and open it anew so that it counts."""

from msgspec import structs

from talaria.commands.command import Errand
from talaria.core.errors import Refused, TalariaError
from talaria.core.ids import SessionId
from talaria.sessions.preferences import Preferences, read_preferences, write_preferences


async def preferences(errand: Errand) -> Preferences:
    """Return what was chosen for the conversation."""
    session_id = errand.seat.session_id
    return await errand.seat.store.read(lambda tx: read_preferences(tx, session_id))


async def prefer(errand: Errand, **changes: str) -> None:
    """Keep what was chosen, and open the conversation anew with it.

    Where it cannot be opened so, everything is as before and the reason is raised.
    """
    if errand.seat.busy:
        raise Refused("A turn is running: stop it first (`/stop`), then choose.")
    seat, session_id, wish = errand.seat, errand.seat.session_id, errand.seat.wish
    before = await preferences(errand)
    if "model" in changes:  # what the program was started with counts no longer
        seat.wish = structs.replace(wish, model="")
    await _keep(errand, session_id, structs.replace(before, **changes))
    try:
        await seat.renew()
    except TalariaError:
        seat.wish = wish
        await _keep(errand, session_id, before)
        raise


async def _keep(errand: Errand, session_id: SessionId, chosen: Preferences) -> None:
    await errand.seat.store.write(lambda tx: write_preferences(tx, session_id, chosen))
