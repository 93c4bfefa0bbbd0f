"""Preferences of one session, for example its model."""

from msgspec import structs

from talaria.commands.command import CommandContext
from talaria.core.errors import Refused, TalariaError
from talaria.core.ids import SessionId
from talaria.sessions.preferences import Preferences, read_preferences, write_preferences


async def get_preferences(context: CommandContext) -> Preferences:
    """Return the preferences of the active session."""
    session_id = context.active_session.session_id
    return await context.active_session.store.read(lambda tx: read_preferences(tx, session_id))


async def set_preferences(context: CommandContext, **changes: str) -> None:
    """Store preferences and reopen the session with them.

    If it cannot be reopened, the old preferences are restored and the error is raised. Raises `Refused` during a turn.
    """
    if context.active_session.busy:
        raise Refused("A turn is running. Stop it with `/stop` first, then choose.")
    active_session, session_id, request = (
        context.active_session,
        context.active_session.session_id,
        context.active_session.request,
    )
    before = await get_preferences(context)
    if "model" in changes:  # overrides the model given at startup
        active_session.request = structs.replace(request, model="")
    await _store(context, session_id, structs.replace(before, **changes))
    try:
        await active_session.renew()
    except TalariaError:
        active_session.request = request
        await _store(context, session_id, before)
        raise


async def _store(context: CommandContext, session_id: SessionId, chosen: Preferences) -> None:
    await context.active_session.store.write(lambda tx: write_preferences(tx, session_id, chosen))
