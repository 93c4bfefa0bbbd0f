"""The session_search tool: look things up in earlier sessions."""

from typing import Annotated

from msgspec import Meta, Struct

from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.messages import StoredMessage
from talaria.contracts.stores.sessions import Session, SessionFilter, Viewer
from talaria.contracts.tool import Call, Effect, ProposedAction, ToolOutput
from talaria.core.errors import ToolFailed
from talaria.core.ids import SessionId
from talaria.tools.recall.embeddings import Meaning
from talaria.tools.recall.ranking import Find, find

_SESSIONS_SHOWN = 6
_PASSAGES_SHOWN = 4
_RECENT = 15
_BEFORE = 5
_AROUND = 11
_LONGEST_MESSAGE = 1_500


class SessionSearchArguments(Struct, frozen=True):
    """A query, or a place to read."""

    query: Annotated[str, Meta(description="Keywords or meaning; empty: recent conversations")] = ""
    session: Annotated[str, Meta(description="Search only this session")] = ""
    around: Annotated[int, Meta(ge=0, description="Read that session's messages around this number")] = 0


class SessionSearch:
    """Searches the store; people find only their own sessions, and in a group only those of that group.

    The current session may always be read: a summary refers to its messages.
    """

    name = "session_search"
    description = "Search earlier conversations."
    effect = Effect.READS
    arguments: type[Struct] = SessionSearchArguments

    def __init__(self, store: Store, meaning: Meaning | None = None) -> None:
        self._store = store
        self._meaning = meaning

    def proposed_action(self, arguments: SessionSearchArguments) -> ProposedAction:
        """Describe the search."""
        return ProposedAction("other", f"search conversations: {arguments.query or arguments.session or 'recent'}")

    async def run(self, arguments: SessionSearchArguments, call: Call) -> ToolOutput:
        """Return matches, messages around a number, or the latest sessions."""
        session_id = SessionId(arguments.session) if arguments.session else None
        viewer = None if session_id == call.session_id else Viewer(call.owner, call.audience)
        if session_id is not None and (arguments.around or not arguments.query):
            return ToolOutput(await self._store.read(lambda tx: _read(tx, session_id, viewer, arguments.around)))
        if not arguments.query.strip():
            return ToolOutput(await self._store.read(lambda tx: _recent(tx, viewer, call.session_id)))
        finds = await find(self._store, arguments.query, viewer, session_id=session_id, meaning=self._meaning)
        shown = "\n\n".join(_shown(one, call.session_id) for one in finds[:_SESSIONS_SHOWN])
        return ToolOutput(shown or "Nothing found. Try other words.")


def _shown(found: Find, here: SessionId) -> str:
    lines = [f"#{one.seq} {one.role}: {one.text}" for one in found.passages[:_PASSAGES_SHOWN]]
    return "\n".join([_headline(found.session, here), *lines])


def _headline(session: Session, here: SessionId) -> str:
    title = session.title or "untitled"
    note = ", this conversation" if session.id == here else ""
    return f"{session.updated_at:%Y-%m-%d} {title} (session {session.id}, {session.message_count} messages{note})"


def _recent(tx: Transaction, viewer: Viewer | None, here: SessionId) -> str:
    sessions = tx.sessions.find(SessionFilter(seen_by=viewer, limit=_RECENT))
    return "\n".join(_headline(session, here) for session in sessions) or "There are no sessions yet."


def _read(tx: Transaction, session_id: SessionId, viewer: Viewer | None, around: int) -> str:
    found = tx.sessions.find(SessionFilter(id=session_id, seen_by=viewer, archived=None))
    if not found:
        raise ToolFailed(f"there is no session {session_id}")
    if around:
        messages = tx.messages.load(session_id, after=max(0, around - 1 - _BEFORE), limit=_AROUND)
    else:
        messages = tx.messages.last(session_id, _AROUND)
    return "\n\n".join([_headline(found[0], SessionId("")), *map(_line, messages)])


def _line(stored: StoredMessage) -> str:
    text = stored.message.text.strip()
    if len(text) > _LONGEST_MESSAGE:
        text = f"{text[:_LONGEST_MESSAGE]}… [{len(text)} characters]"
    message = stored.message
    # Messages sent to a session from elsewhere have an author; other messages of the agent have none.
    who = f"{message.role} ({message.author})" if message.role == "assistant" and message.author else message.role
    return f"#{stored.seq} {who}: {text or '(no text)'}"
