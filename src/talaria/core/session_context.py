"""What belongs to the conversation that is being worked on: one value, carried by the context of each task."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar, Token

from msgspec import Struct

from talaria.core.senders import UNKNOWN


class SessionContext(Struct, frozen=True, kw_only=True):
    """Whose turn it is; what is not known is empty.

    ``source`` is the front door, ``platform`` the network behind it, ``message_id`` the message that is answered, and
    ``cwd`` the folder in which the turn began. ``sender`` is the person whose rights the turn has. ``async_delivery``
    says that the conversation can be woken later. The last three are where a scheduled job reports.
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
    """Return what is bound here; ``None`` where nothing ever was."""
    return _current.get()


def bind(context: SessionContext) -> Token[SessionContext | None]:
    """Bind all of it from now on, for this task and what it starts; `bound` is the better way."""
    return _current.set(context)


@contextmanager
def bound(context: SessionContext) -> Iterator[None]:
    """Bind all of it within a block; nothing of what was bound outside shines through."""
    token = _current.set(context)
    try:
        yield
    finally:
        _current.reset(token)


def variables(context: SessionContext) -> dict[str, str]:
    """Return the environment variables that tell a child process whose turn it is: every name, also of what is empty.

    So a script may rely on them, and what another conversation left in the environment is covered.
    """
    return {name: getattr(context, field) for name, field in FIELDS.items()}


def without_context(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without what it tells of any conversation."""
    return {name: value for name, value in environment.items() if not name.startswith(_PREFIXES)}


def for_child(environment: Mapping[str, str], context: SessionContext) -> dict[str, str]:
    """Return the environment of a child process of this conversation, with nothing of another one."""
    return {**without_context(environment), **variables(context)}
