"""Conversations of the web app: their addresses, rows of the list, details, and pages of the transcript."""

from collections.abc import Iterator
from datetime import datetime

import msgspec
from msgspec import Struct, structs

from talaria.commands.status import get_counted_tokens
from talaria.contracts.store import Transaction
from talaria.contracts.stores.queues import InboxItem
from talaria.contracts.stores.sessions import Binding, Session, SessionFilter, StoredMessage
from talaria.contracts.values import SessionValue
from talaria.core.addresses import WEB, Address
from talaria.core.formatting import platform_label
from talaria.core.ids import SessionId, is_id, new_id
from talaria.core.messages import File, Image
from talaria.http.errors import Problem, make_not_found
from talaria.runtime.live.remote import SessionLocation, locate_session
from talaria.runtime.turns import MIRROR, read_inbox_message, replace_files
from talaria.runtime.workers import is_leased, session_lease_name
from talaria.sessions.branches import list_exchanges
from talaria.sessions.chat_directory import HomeChat, read_home, write_home
from talaria.sessions.keys import build_session_key
from talaria.sessions.preferences import read_plan_mode, read_preferences
from talaria.web.files import WebFiles
from talaria.web.front_door import WebCaller
from talaria.web.wire import (
    BranchView,
    MessagePage,
    NoticeView,
    QueuedMessage,
    SessionDetail,
    SessionListQuery,
    SessionPage,
    SessionRow,
    TranscriptMessage,
    TranscriptQuery,
)

OWNER_CHAT = "owner"
_PEOPLE = "people/"  # a chat of another person; so that nobody's name is that of the owner's chat
UNREAD = SessionValue("web_unread", int)  # how many messages were delivered while nobody looked
PAGE = 60
TAKEN_FROM = SessionValue("web_taken_from", Address)
_RECENT = 60
_NEWEST = SessionListQuery()
_MOST_BRANCHES = 100


class WebNotice(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A delivered message that is no part of the transcript; ``after`` is the last message before it."""

    at: datetime
    after: int
    text: str = ""
    files: tuple[File | Image, ...] = ()


WEB_NOTICE = SessionValue("web_notice", WebNotice)  # by the time and the key of the message in the outbox


def web_address(person: str = "", thread_id: str = "") -> Address:
    """Return the address of a person, empty for the owner of the agent, or of one of their conversations."""
    return Address(WEB, f"{_PEOPLE}{person}" if person else OWNER_CHAT, thread_id=thread_id)


def new_thread(person: str) -> Address:
    """Return an address for a new conversation."""
    return web_address(person, new_id())


def person_of(address: Address) -> str:
    """Return the person of an address, empty for the owner of the agent."""
    return address.chat_id.removeprefix(_PEOPLE) if address.chat_id.startswith(_PEOPLE) else ""


def find_web_binding(tx: Transaction, session_id: SessionId) -> Binding | None:
    """Return the binding of a conversation to the web app, if it is there."""
    for binding in tx.bindings.of_session(session_id)[:1]:
        return binding if binding.address.platform == WEB else None
    return None


def find_delivered_session(tx: Transaction, address: Address) -> SessionId | None:
    """Return the conversation at an address; ``None`` if it has moved or was deleted."""
    binding = tx.bindings.get(build_session_key(address))
    return binding.session_id if binding is not None and tx.sessions.get(binding.session_id) else None


def set_home(tx: Transaction) -> None:
    """Make the owner's chat the home of the web app, unless it has one."""
    if read_home(tx, WEB) is None:
        write_home(tx, HomeChat(web_address()))


def answers_elsewhere(location: SessionLocation, *, runs_here: bool) -> bool:
    """Return whether another process or chat answers what is said in a conversation."""
    if runs_here:
        return False
    return location.is_running or (location.is_served and location.platform != WEB)


def require_session(tx: Transaction, name: str, caller: WebCaller) -> Session:
    """Return a conversation that the caller may see, or raise a `Problem`."""
    session = tx.sessions.get(SessionId(name)) if is_id(name) else None
    if session is None or not caller.may_see(session):
        raise make_not_found("There is no such conversation.", code="session_not_found")
    return session


def read_rows(
    tx: Transaction,
    caller: WebCaller,
    query: SessionListQuery = _NEWEST,
    *,
    before: datetime | None = None,
    limit: int = PAGE,
) -> list[SessionRow]:
    """Return the conversations that were used last, or last before a time."""
    criteria = SessionFilter(
        archived=query.archived,
        source=query.source,
        owner=query.owner,
        limit=limit,
        updated_before=before,
        seen_by=caller.viewer,
    )
    sessions = [one for one in tx.sessions.find(criteria) if caller.may_see(one)]
    running = {turn.session_id for turn in tx.turns.find(running=True) if _is_owned(tx, turn.session_id)}
    networks = {binding.session_id: binding.address.platform for binding in reversed(tx.bindings.under(""))}
    unread = {session_id: count for session_id, _, count in UNREAD.of_all(tx)}
    return [
        _to_row(one, networks.get(one.id, ""), is_running=one.id in running, unread=unread.get(one.id, 0))
        for one in sessions
    ]


def read_page(tx: Transaction, caller: WebCaller, query: SessionListQuery) -> SessionPage:
    """Return a page of the list; its ``after`` is the ``next`` of the page before."""
    try:
        before = msgspec.convert(query.after, datetime) if query.after else None
    except msgspec.ValidationError as error:
        raise Problem("`after` must be the `next` of the previous page.", code="invalid_value") from error
    rows = read_rows(tx, caller, query, before=before, limit=PAGE + 1)
    more = len(rows) > PAGE
    return SessionPage(rows[:PAGE], rows[PAGE - 1].updated_at.isoformat() if more else "")


def read_row(tx: Transaction, session: Session) -> SessionRow:
    """Return one conversation as a row of the list."""
    bindings = tx.bindings.of_session(session.id)
    network = bindings[0].address.platform if bindings else ""
    unread = UNREAD.get(tx, session.id) or 0
    return _to_row(session, network, is_running=_is_running(tx, session.id), unread=unread)


def read_detail(
    tx: Transaction, session: Session, caller: WebCaller, *, runs_here: bool, context_limit: int = 0
) -> SessionDetail:
    """Return a conversation with its location; ``runs_here`` if a turn of the web app is running in this process."""
    row, location, preferences = read_row(tx, session), locate_session(tx, session), read_preferences(tx, session.id)
    taken = None if row.network else TAKEN_FROM.get(tx, session.id)
    return SessionDetail(
        **structs.asdict(row),
        location=location.description,
        elsewhere=answers_elsewhere(location, runs_here=runs_here),
        taken_from=platform_label(taken.platform) if taken is not None else "",
        queued=tuple(_list_queued(tx, session.id, caller)),
        context=get_counted_tokens(tx, session.id),
        context_limit=context_limit,
        cost_microdollars=session.usage.cost_microdollars,
        effort=preferences.effort,
        personality=preferences.personality,
        planning=read_plan_mode(tx, session.id).is_on,
        branches=len(read_tree(tx, session, caller)),
    )


def read_tree(tx: Transaction, session: Session, caller: WebCaller) -> list[BranchView]:
    """Return a conversation and its branches, those of the same parent in the order of their beginning.

    The list is empty if there are no branches, and ends at a limit.
    """
    root = session
    while root.parent_id is not None and root.parent_seq and (parent := tx.sessions.get(root.parent_id)) is not None:
        root = parent
    found, waiting = [root], [root]
    while waiting and len(found) < _MOST_BRANCHES:
        criteria = SessionFilter(parent_id=waiting.pop(0).id, archived=None, limit=_MOST_BRANCHES)
        children = [one for one in tx.sessions.find(criteria) if one.parent_seq and caller.may_see(one)]
        found += (children := sorted(children, key=lambda one: one.created_at))
        waiting += children
    return [_to_branch(one) for one in found] if len(found) > 1 else []


def find_queued(tx: Transaction, session_id: SessionId, item_id: int, caller: WebCaller) -> InboxItem | None:
    """Return a pending message that the caller may withdraw."""
    return next((one for one in _iterate_waiting(tx, session_id) if one.id == item_id and _is_own(one, caller)), None)


def read_messages(tx: Transaction, session: Session, asked: TranscriptQuery, files: WebFiles) -> MessagePage:
    """Return a page of the transcript."""
    if asked.after >= 0:
        found = tx.messages.load(session.id, after=asked.after, limit=asked.limit)
        more = False
    else:
        last = asked.before - 1 if asked.before else session.message_count
        first = max(last - asked.limit, 0)
        found = tx.messages.load(session.id, after=first, limit=last - first) if last > first else []
        more = first > 0
    notices = [
        NoticeView(key, one.after, one.at, one.text, tuple(map(files.view, one.files)))
        for key, one in WEB_NOTICE.items(tx, session.id).items()
    ]
    return MessagePage([_to_message(one, files) for one in found], more, _find_turn_start(tx, session), notices)


def _list_queued(tx: Transaction, session_id: SessionId, caller: WebCaller) -> Iterator[QueuedMessage]:
    for item in _iterate_waiting(tx, session_id):
        text = replace_files(read_inbox_message(item.payload), "is attached").text
        if text:
            yield QueuedMessage(item.id, text, own=_is_own(item, caller))


def _iterate_waiting(tx: Transaction, session_id: SessionId) -> Iterator[InboxItem]:
    return (one for one in tx.inbox.list_unsettled(session_id) if one.state == "waiting" and one.kind != MIRROR)


def _is_own(item: InboxItem, caller: WebCaller) -> bool:
    return caller.is_owner or read_inbox_message(item.payload).sender == caller.sender


def _to_message(stored: StoredMessage, files: WebFiles) -> TranscriptMessage:
    message = stored.message
    parts = tuple(files.view(part) if isinstance(part, Image | File) else part for part in message.parts)
    return TranscriptMessage(stored.seq, message.role, message.at, message.model, message.author, parts)


def _find_turn_start(tx: Transaction, session: Session) -> int | None:
    """Return the number of the message that began the running turn."""
    if not _is_running(tx, session.id):
        return None
    starts = list_exchanges(tx.messages.last(session.id, _RECENT))
    return starts[-1].seq if starts else None


def _is_running(tx: Transaction, session_id: SessionId) -> bool:
    return bool(tx.turns.find(session_id, running=True, limit=1)) and _is_owned(tx, session_id)


def _is_owned(tx: Transaction, session_id: SessionId) -> bool:
    """Return whether a process runs a session; the turn of one that has died waits to be resumed."""
    return is_leased(tx, session_lease_name(session_id))


def _to_branch(session: Session) -> BranchView:
    return BranchView(
        id=session.id,
        title=session.title,
        parent_id=session.parent_id or "",
        parent_seq=session.parent_seq,
        message_count=session.message_count,
        updated_at=session.updated_at,
        archived=session.archived_at is not None,
    )


def _to_row(session: Session, network: str, *, is_running: bool, unread: int) -> SessionRow:
    return SessionRow(
        id=session.id,
        title=session.title,
        source=session.source,
        network="" if network == WEB else network,
        owner=session.owner,
        model=session.model,
        updated_at=session.updated_at,
        message_count=session.message_count,
        archived=session.archived_at is not None,
        running=is_running,
        unread=unread,
    )
