"""Sessions visible to a user: lookup, display names and last exchange."""

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from talaria.commands.arguments import escape_markdown, render_message
from talaria.commands.command import CommandContext
from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import Session, SessionFilter, StoredMessage, Viewer
from talaria.core.addresses import audience_of
from talaria.core.formatting import format_age, pluralize
from talaria.core.ids import SessionId
from talaria.sessions.branches import list_exchanges
from talaria.sessions.titles import find_by_name, read_opening
from talaria.sessions.transcript_export import drop_program_messages, is_mirrored

_EXTRA_ROWS = 20
_RECENT_MESSAGES = 60
_TEXT_LIMIT = 600


class SessionScope(Struct, frozen=True):
    """Sessions a user may see: those visible to ``viewer``, or without one only the active session."""

    here: SessionId
    viewer: Viewer | None

    @property
    def only_session_id(self) -> SessionId | None:
        """The only visible session, if the scope is limited to one."""
        return self.here if self.viewer is None else None


def get_session_scope(tx: Transaction, context: CommandContext) -> SessionScope:
    """Return the sessions that the author of a command may see in this chat.

    A guest sees nothing of the owner's; in a group the owner sees only what was said there.
    """
    here = tx.sessions.get(context.active_session.session_id)
    audience = audience_of(context.surface.address)
    owner = here.owner if here and (audience or not context.author.owner) else ""
    return SessionScope(
        context.active_session.session_id, Viewer(owner, audience) if owner or context.author.owner else None
    )


def find_visible_sessions(
    tx: Transaction, context: CommandContext, *, matching: str = "", limit: int, archived: bool | None = False
) -> list[Session]:
    """Return matching visible sessions, last used first.

    Empty sessions without a title are included only if they are active.
    """
    scope = get_session_scope(tx, context)
    session_filter = SessionFilter(
        id=scope.only_session_id, matching=matching, seen_by=scope.viewer, archived=archived, limit=limit + _EXTRA_ROWS
    )
    found = [one for one in find_by_name(tx, session_filter) if one.message_count or one.title or one.id == scope.here]
    return found[:limit]


def get_display_name(tx: Transaction, session: Session) -> str:
    """Return the title of a session, its first words, or its id."""
    return session.title or read_opening(tx, session) or session.id


def get_resume_handle(tx: Transaction, session: Session) -> str:
    """Return the argument for `/resume`: the title if it is unique, otherwise the id."""
    title = " ".join(session.title.split())
    if not title or title != session.title:
        return session.id
    found = tx.sessions.find(SessionFilter(matching=title, owner=session.owner, archived=None, limit=2))
    return title if [one.id for one in found] == [session.id] else session.id


def describe_session(session: Session, now: datetime) -> str:
    """Return details that distinguish sessions of the same name."""
    return f"{format_age(session.updated_at, now)}, {pluralize(session.message_count, 'message')}, {session.source}"


def format_resume_command(tx: Transaction, session: Session) -> str:
    """Return the command that resumes a session."""
    return f"`/resume {get_resume_handle(tx, session)}`"


def render_last_exchange(messages: Sequence[StoredMessage]) -> str:
    """Return the last exchange as Markdown; empty if there is none."""
    messages = drop_program_messages(messages)
    starts = list_exchanges(messages)
    if not starts:
        return ""
    question = starts[-1].message
    quoted = render_message(question, _TEXT_LIMIT).replace("\n", "\n> ")
    later = [one.message for one in messages if one.seq > starts[-1].seq and one.message.role == "assistant"]
    answers = [message for message in later if not is_mirrored(message)]
    answer = render_message(answers[-1], _TEXT_LIMIT) if answers else "*(not answered yet)*"
    mirrored = [
        f"**{escape_markdown(one.author)}:** {render_message(one, _TEXT_LIMIT)}" for one in later if is_mirrored(one)
    ]
    return "\n\n".join([f"> **{escape_markdown(question.author) or 'You'}:** {quoted}", answer, *mirrored])


def load_last_exchange(tx: Transaction, session: Session) -> str:
    """Return the last exchange of a session as Markdown."""
    return render_last_exchange(tx.messages.last(session.id, _RECENT_MESSAGES))
