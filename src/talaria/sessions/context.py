"""The session context as tools and plug-ins of others see it: by names, as if it were the environment."""

from contextvars import Token
from pathlib import Path

from msgspec import structs

from talaria.core.addresses import Address
from talaria.core.senders import user_id_of
from talaria.core.session_context import FIELDS, SESSION_ID, SessionContext, bind, current_context
from talaria.sessions.turn_log import StoredTurn
from talaria.settings.environment import environment_value, move_variable

Tokens = tuple[Token[SessionContext | None], ...]


def set_session_vars(*, async_delivery: bool = True, **values: str | int | None) -> Tokens:
    """Bind all fields of `SessionContext` for this context: those given, and the others as empty.

    What it returns is for `clear_session_vars`.
    """
    words = {name: "" if value is None else str(value) for name, value in values.items()}
    return (bind(SessionContext(async_delivery=async_delivery, **words)),)


def clear_session_vars(tokens: Tokens) -> None:
    """Let every value read as empty from now on, whatever was bound before; late delivery counts as possible again."""
    bind(SessionContext())


def get_session_env(name: str, default: str = "") -> str:
    """Return what is bound here under this name, even if it is empty.

    Where nothing ever was, and for names that the context does not carry, the environment counts, then ``default``.
    """
    context = current_context()
    if context is None or name not in FIELDS:
        return environment_value(name, default)
    return str(getattr(context, FIELDS[name]))


def set_current_session_id(session_id: str) -> None:
    """Go on with another conversation in a process that has one at a time, or with none.

    The environment moves along: it is what counts wherever nothing was ever bound.
    """
    move_variable(SESSION_ID, session_id)
    context = current_context()
    if context is not None:
        bind(structs.replace(context, session_id=session_id))


def async_delivery_supported() -> bool:
    """Tell whether this conversation can be woken when something ends later; not where its front door said no."""
    context = current_context()
    return context is None or context.async_delivery


def place_context(known: SessionContext, key: str, address: Address | None) -> SessionContext:
    """Return what is known of a place, with what its key and its address say."""
    if address is None:
        return structs.replace(known, session_key=key or known.session_key)
    return structs.replace(
        known,
        session_key=key or known.session_key,
        platform=address.platform,
        chat_id=address.chat_id,
        thread_id=address.thread_id,
        user_id=address.user_id or known.user_id,
    )


def turn_context(place: SessionContext, turn: StoredTurn, cwd: Path) -> SessionContext:
    """Return whose turn this is: where its reply goes counts more than what the place knows."""
    own = structs.replace(place, session_id=turn.session_id, turn_id=turn.turn_id, cwd=str(cwd), sender=turn.sender)
    route = turn.route
    if route is None:
        return own
    address = route.address
    return structs.replace(
        own,
        platform=address.platform,
        chat_id=address.chat_id,
        chat_name=route.chat_name or (place.chat_name if address.chat_id == place.chat_id else ""),
        thread_id=address.thread_id,
        user_id=route.user_id or address.user_id or user_id_of(turn.sender, address.platform) or place.user_id,
        user_name=route.user_name or place.user_name,
        message_id=route.reply_to,
    )
