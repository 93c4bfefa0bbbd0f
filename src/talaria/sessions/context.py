"""Session context for tools and plug-ins: values by name, like environment variables."""

from contextvars import Token

from msgspec import structs

from talaria.core.addresses import Address
from talaria.core.session_context import FIELDS, SESSION_ID, SessionContext, bind_context, current_context
from talaria.settings.environment import read_environment_value, set_environment_variable

Tokens = tuple[Token[SessionContext | None], ...]


def set_session_vars(*, async_delivery: bool = True, **values: str | int | None) -> Tokens:
    """Bind all fields of `SessionContext`: the given ones, and the others as empty.

    Pass the result to `clear_session_vars`.
    """
    texts = {name: "" if value is None else str(value) for name, value in values.items()}
    return (bind_context(SessionContext(async_delivery=async_delivery, **texts)),)


def clear_session_vars(tokens: Tokens) -> None:
    """Make every value read as empty; asynchronous delivery counts as supported again."""
    bind_context(SessionContext())


def get_session_env(name: str, default: str = "") -> str:
    """Return the value bound to this name, even if it is empty.

    If nothing was ever bound, and for names that the context doesn't have, the environment is read, then ``default``.
    """
    context = current_context()
    if context is None or name not in FIELDS:
        return read_environment_value(name, default)
    return str(getattr(context, FIELDS[name]))


def set_current_session_id(session_id: str) -> None:
    """Switch to another session in a process that has one at a time, or to none.

    The environment variable changes too: it is read wherever no context was ever bound.
    """
    set_environment_variable(SESSION_ID, session_id)
    context = current_context()
    if context is not None:
        bind_context(structs.replace(context, session_id=session_id))


def async_delivery_supported() -> bool:
    """Return whether this session can be woken later; ``False`` if its surface does not support that."""
    context = current_context()
    return context is None or context.async_delivery


def build_surface_context(base: SessionContext, key: str, address: Address | None) -> SessionContext:
    """Return the session context of a chat, from its key and its address."""
    if address is None:
        return structs.replace(base, session_key=key or base.session_key)
    return structs.replace(
        base,
        session_key=key or base.session_key,
        platform=address.platform,
        chat_id=address.chat_id,
        thread_id=address.thread_id,
        user_id=address.user_id or base.user_id,
    )
