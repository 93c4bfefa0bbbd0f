"""The session context: one value that each task carries for the turn it works on."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar, Token

from msgspec import Struct

from talaria.core.messages import UNKNOWN


class SessionContext(Struct, frozen=True, kw_only=True):
    """The session and turn being processed; unknown fields are empty.

    ``source`` is the surface, ``platform`` its network, ``message_id`` the message being answered, and ``cwd`` the
    folder in which the turn started. ``sender`` is the person whose rights the turn has. ``async_delivery`` means that
    the session can be woken later. The last three say where a scheduled job reports.
    """

    platform: str = ""
    source: str = ""
    chat_id: str = ""
    chat_name: str = ""
    thread_id: str = ""
    user_id: str = ""
    user_name: str = ""
    session_key: str = ""
    session_id: str = ""
    message_id: str = ""
    turn_id: str = ""
    cwd: str = ""
    sender: str = UNKNOWN
    async_delivery: bool = True
    cron_auto_deliver_platform: str = ""
    cron_auto_deliver_chat_id: str = ""
    cron_auto_deliver_thread_id: str = ""


SESSION_ID = "TALARIA_SESSION_ID"
FIELDS: Mapping[str, str] = {
    "TALARIA_SESSION_PLATFORM": "platform",
    "TALARIA_SESSION_SOURCE": "source",
    "TALARIA_SESSION_CHAT_ID": "chat_id",
    "TALARIA_SESSION_CHAT_NAME": "chat_name",
    "TALARIA_SESSION_THREAD_ID": "thread_id",
    "TALARIA_SESSION_USER_ID": "user_id",
    "TALARIA_SESSION_USER_NAME": "user_name",
    "TALARIA_SESSION_KEY": "session_key",
    SESSION_ID: "session_id",
    "TALARIA_SESSION_MESSAGE_ID": "message_id",
    "TALARIA_CRON_AUTO_DELIVER_PLATFORM": "cron_auto_deliver_platform",
    "TALARIA_CRON_AUTO_DELIVER_CHAT_ID": "cron_auto_deliver_chat_id",
    "TALARIA_CRON_AUTO_DELIVER_THREAD_ID": "cron_auto_deliver_thread_id",
}
_PREFIXES = ("TALARIA_SESSION_", "TALARIA_CRON_AUTO_DELIVER_")

_current: ContextVar[SessionContext | None] = ContextVar("talaria_session", default=None)


def current_context() -> SessionContext | None:
    """Return the bound context; ``None`` if there never was one."""
    return _current.get()


def bind_context(context: SessionContext) -> Token[SessionContext | None]:
    """Bind a context from now on, for this task and the tasks it starts; prefer `bound`."""
    return _current.set(context)


@contextmanager
def bound(context: SessionContext) -> Iterator[None]:
    """Bind a context within a block; it hides the outer one completely."""
    token = _current.set(context)
    try:
        yield
    finally:
        _current.reset(token)


def context_variables(context: SessionContext) -> dict[str, str]:
    """Return the environment variables that describe this turn to a child process, including empty ones.

    Scripts may rely on them, and values left by another session are overridden.
    """
    return {name: getattr(context, field) for name, field in FIELDS.items()}


def without_context(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without the variables of any session."""
    return {name: value for name, value in environment.items() if not name.startswith(_PREFIXES)}


def child_environment(environment: Mapping[str, str], context: SessionContext) -> dict[str, str]:
    """Return the environment of a child process of this session, without values of another one."""
    return {**without_context(environment), **context_variables(context)}
