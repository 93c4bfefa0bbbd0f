"""The conversations that somebody may see, how they are told apart, and what was said in them last."""

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from talaria.commands.command import Errand
from talaria.commands.markdown import plain, readable
from talaria.contracts.store import Transaction
from talaria.contracts.stores.messages import StoredMessage
from talaria.contracts.stores.sessions import Session, SessionFilter, Viewer
from talaria.core.addresses import audience_of
from talaria.core.ids import SessionId
from talaria.core.wording import ago, counted
from talaria.sessions.branching import exchanges
from talaria.sessions.naming import find_by_name, opening
from talaria.sessions.transcripts import is_mirrored, said_by_people

_SPARE = 20
_LOOKED_BACK = 60
_LONGEST_RECALLED = 600


class Reach(Struct, frozen=True):
    """Which conversations somebody may see: those that ``viewer`` sees, or, without one, only the one that is open."""

    here: SessionId
    viewer: Viewer | None

    @property
    def only(self) -> SessionId | None:
        """The one conversation to which it is limited, if it is limited to one."""
        return self.here if self.viewer is None else None


def reach_of(tx: Transaction, errand: Errand) -> Reach:
    """Return what may be shown to the author of a command in their place, where others may read along.

    A stranger sees nothing of the owner's, and the owner in a group nothing that was not said there.
    """
    here = tx.sessions.get(errand.seat.session_id)
    audience = audience_of(errand.place.address)
    owner = here.owner if here and (audience or not errand.author.owner) else ""
    return Reach(errand.seat.session_id, Viewer(owner, audience) if owner or errand.author.owner else None)


def find_conversations(
    tx: Transaction, errand: Errand, *, matching: str = "", limit: int, archived: bool | None = False
) -> list[Session]:
    """Return those that fit and may be seen, last used first; those in which nothing was said only if they are open."""
    reach = reach_of(tx, errand)
    wanted = SessionFilter(
        id=reach.only, matching=matching, seen_by=reach.viewer, archived=archived, limit=limit + _SPARE
    )
    found = [one for one in find_by_name(tx, wanted) if one.message_count or one.title or one.id == reach.here]
    return found[:limit]


def name_of(tx: Transaction, session: Session) -> str:
    """Return what a person knows a conversation by: its title, its first words, or its id."""
    return session.title or opening(tx, session) or session.id


def handle_of(tx: Transaction, session: Session) -> str:
    """Return what `/resume` finds a conversation by: its title if it alone has it, else its id."""
    title = " ".join(session.title.split())
    if not title or title != session.title:
        return session.id
    found = tx.sessions.find(SessionFilter(matching=title, owner=session.owner, archived=None, limit=2))
    return title if [one.id for one in found] == [session.id] else session.id


def facts(session: Session, now: datetime) -> str:
    """Return what tells a conversation from others of the same name."""
    return f"{ago(session.updated_at, now)}, {counted(session.message_count, 'message')}, {session.source}"


def way_back(tx: Transaction, session: Session) -> str:
    """Return how to go on with a conversation, as it is typed."""
    return f"`/resume {handle_of(tx, session)}`"


def last_exchange(messages: Sequence[StoredMessage]) -> str:
    """Return what was said last, so that one knows where one is."""
    messages = said_by_people(messages)
    begun = exchanges(messages)
    if not begun:
        return ""
    said = begun[-1].message
    quoted = readable(said, _LONGEST_RECALLED).replace("\n", "\n> ")
    since = [one.message for one in messages if one.seq > begun[-1].seq and one.message.role == "assistant"]
    answers = [message for message in since if not is_mirrored(message)]
    answer = readable(answers[-1], _LONGEST_RECALLED) if answers else "*(not answered yet)*"
    sent = [f"**{plain(one.author)}:** {readable(one, _LONGEST_RECALLED)}" for one in since if is_mirrored(one)]
    return "\n\n".join([f"> **{plain(said.author) or 'You'}:** {quoted}", answer, *sent])


def recall(tx: Transaction, session: Session) -> str:
    """Return the last exchange of a conversation."""
    return last_exchange(tx.messages.last(session.id, _LOOKED_BACK))
