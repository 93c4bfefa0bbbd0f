"""Stored delegations: their creation, child sessions, results and end."""

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
from msgspec import Struct, structs

from talaria.agent.context_window import list_open_calls, make_results_message
from talaria.agent.tool_dispatch import STOPPED
from talaria.contracts.background_processes import end_processes
from talaria.contracts.delegation import ChildState, ChildTask, DelegatedTask
from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import NewSession, SessionChanges, SessionFilter
from talaria.contracts.stores.turns import DelegatedTaskRow
from talaria.contracts.tool import Call
from talaria.core.errors import NotFound
from talaria.core.ids import SessionId, WorkerId
from talaria.core.messages import PROGRAM, Message, Text, ToolResult, Usage
from talaria.core.session_context import SessionContext
from talaria.runtime.open_session import WORKSPACE
from talaria.runtime.turns import make_arrival
from talaria.sessions.preferences import read_preferences, write_preferences

SOURCE = "delegate"
_BACKGROUND = "background:"
DELEGATIONS = "delegations"  # topic notified when a background delegation is started or stopped


class Delegation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Tasks of one call, with everything needed to run them in any process.

    ``handle`` is set for background work. ``surface``, ``folder``, ``workspace``, ``model``, ``tools`` and ``context``
    are those of the requesting session; ``owner`` and ``audience`` those of its chat. ``ancestors`` are that session
    and its parents, nearest first. ``worker`` is the process that starts it, ``host`` the machine it is bound to, if
    any. ``said`` is the text of the person who requested it.
    """

    key: str
    session_id: SessionId
    children: tuple[ChildTask, ...]
    surface: str
    folder: str
    began: datetime
    context: SessionContext = SessionContext()
    workspace: str = ""
    owner: str = ""
    audience: str = ""
    model: str = ""
    tools: tuple[str, ...] = ()
    ancestors: tuple[SessionId, ...] = ()
    handle: str = ""
    worker: WorkerId = WorkerId("")
    host: str = ""
    said: str = ""
    stopped: bool = False

    @property
    def depth(self) -> int:
        """Depth of delegation, counted from the session of a person."""
        return len(self.ancestors)

    @property
    def account(self) -> str:
        """Ledger account for the combined cost of all children."""
        return f"delegated:{self.context.turn_id or self.key}"


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Delegation).decode


def call_key(call: Call, tasks: Sequence[DelegatedTask]) -> str:
    """Return a key that identifies a repeated call.

    It includes the tasks, because some servers repeat ids within a turn.
    """
    words = repr((call.id, tasks)).encode("utf-8", "surrogatepass")
    digest = hashlib.sha256(words).hexdigest()[:16]
    return f"delegation:{call.session_id}:{call.context.turn_id}:{digest}"


def handle_of(key: str) -> str:
    """Return the short handle of a background delegation."""
    return f"bg-{hashlib.sha256(key.encode()).hexdigest()[:6]}"


def read_delegation(tx: Transaction, key: str) -> Delegation | None:
    """Return the delegation stored under a key, with its progress so far."""
    row = tx.delegated_tasks.get(key)
    return _decode(row.body) if row else None


def save_delegation(tx: Transaction, requested: Delegation) -> Delegation:
    """Store a delegation, or return the one stored before for the same call."""
    known = read_delegation(tx, requested.key)
    if known is not None:
        return known
    _save(tx, requested)
    return requested


def start_in_background(tx: Transaction, requested: Delegation) -> Delegation:
    """Store a background delegation, or return the one stored before for the same call."""
    known = read_delegation(tx, requested.key)
    if known is not None:
        return known
    begun = structs.replace(requested, handle=handle_of(requested.key))
    _save(tx, begun)
    _save(tx, structs.replace(begun, key=_build_background_key(begun.session_id, begun.handle)))
    tx.notify(DELEGATIONS)
    return begun


def queue_in_background(tx: Transaction, requested: Delegation) -> str:
    """Store a background delegation that a person requested, and return its handle."""
    handle = handle_of(requested.key)
    _save(tx, structs.replace(requested, key=_build_background_key(requested.session_id, handle), handle=handle))
    tx.notify(DELEGATIONS)
    return handle


def list_background(tx: Transaction, session_id: SessionId | None = None) -> list[Delegation]:
    """Return the background delegations of a session, or of all sessions, oldest first."""
    tasks = tx.delegated_tasks
    rows = tasks.of_session(session_id, background=True) if session_id else tasks.in_background()
    return sorted((_decode(row.body) for row in rows), key=lambda one: one.began)


def list_delegations(tx: Transaction) -> list[Delegation]:
    """Return the delegations of all sessions: background ones, and those that a running turn waits for."""
    found = {one.handle: one for one in list_background(tx)}
    waited_for = [
        _decode(row.body)
        for session_id in dict.fromkeys(turn.session_id for turn in tx.turns.find(running=True))
        for row in tx.delegated_tasks.of_session(session_id, background=False)
    ]
    return [*found.values(), *(one for one in waited_for if one.handle not in found or not one.handle)]


def ask_to_stop(tx: Transaction, session_id: SessionId, handle: str) -> Delegation:
    """Mark a background delegation to be stopped by the process that runs it.

    Raises `NotFound` if there is none with this handle.
    """
    found = read_delegation(tx, _build_background_key(session_id, handle))
    if found is None:
        raise NotFound(f"There is no background task `{handle}`. `/background` lists them.")
    _save(tx, structs.replace(found, stopped=True))
    tx.notify(DELEGATIONS)
    return found


def ask_to_stop_all(tx: Transaction, session_id: SessionId) -> int:
    """Mark all background delegations that the agent started in a session to be stopped; return their number."""
    found = [one for one in list_background(tx, session_id) if not one.said and not one.stopped]
    for one in found:
        _save(tx, structs.replace(one, stopped=True))
    if found:
        tx.notify(DELEGATIONS)
    return len(found)


def remove_delegation(tx: Transaction, delegation: Delegation) -> list[SessionId]:
    """Delete a delegation, end its open child sessions and return their ids."""
    tx.delegated_tasks.delete(delegation.key)
    if delegation.handle and not _is_background(delegation):  # it continues in the background
        return []
    open_children = [
        one.session_id for one in delegation.children if one.session_id is not None and one.state == "open"
    ]
    return [ended for session_id in open_children for ended in end_child(tx, session_id)]


def begin_child(tx: Transaction, key: str, number: int, words: str) -> SessionId | None:
    """Return the session of a child, created if missing, with its task in the inbox.

    Returns ``None`` if the delegation was removed or stopped.
    """
    known = read_delegation(tx, key)
    if known is None or known.stopped:
        return None
    child = known.children[number]
    session_id = child.session_id
    if session_id is None:
        session_id = _create_session(tx, known)
        _save(tx, _replace_child(known, number, structs.replace(child, session_id=session_id)))
    send_to_child(tx, session_id, "task", words)
    return session_id


def send_to_child(tx: Transaction, session_id: SessionId, purpose: str, words: str) -> bool:
    """Queue text for a child session, once for each ``purpose``; ``False`` for a duplicate."""
    message = Message(role="user", parts=(Text(words),), at=datetime.now(UTC), author=PROGRAM)
    return tx.inbox.add(make_arrival(session_id, SOURCE, f"{session_id}:{purpose}", message)) is not None


def settle_child(tx: Transaction, key: str, number: int, state: ChildState, text: str) -> None:
    """Store the result of an open child and archive its session; ignore removed or settled ones."""
    known = read_delegation(tx, key)
    if known is None or known.children[number].state != "open":
        return
    child = structs.replace(known.children[number], state=state, text=text)
    _save(tx, _replace_child(known, number, child))
    if child.session_id is not None:
        _archive_session(tx, child.session_id)


def end_child(tx: Transaction, session_id: SessionId) -> list[SessionId]:
    """End the interrupted turns of a child session; return it and the sessions delegated below it.

    Unanswered tool calls get failed results, so that the transcript stays valid, and the inbox is settled.
    """
    ended = [session_id, *end_delegated_calls(tx, session_id)]
    messages = [stored.message for stored in tx.messages.load(session_id)]
    for turn in tx.turns.find(session_id, running=True):
        if unanswered := list_open_calls(messages):
            results = [ToolResult(call.id, STOPPED, failed=True) for call in unanswered]
            tx.messages.append(session_id, [make_results_message(results, datetime.now(UTC))])
        tx.turns.end(turn.id, "stopped")
    tx.inbox.settle([item.id for item in tx.inbox.list_unsettled(session_id)])
    _archive_session(tx, session_id)
    return ended


def end_delegated_calls(tx: Transaction, session_id: SessionId) -> list[SessionId]:
    """End the delegated calls of a session, and return the interrupted child sessions."""
    found = [_decode(row.body) for row in tx.delegated_tasks.of_session(session_id, background=False)]
    return [ended for one in found for ended in remove_delegation(tx, one)]


def read_last_turn(tx: Transaction, session_id: SessionId) -> tuple[ChildState, str]:
    """Return the state of a child's last turn, and its text."""
    turns = tx.turns.find(session_id, limit=1)
    if not turns:
        return "failed", "It never started."
    turn = turns[-1]
    messages = [stored.message for stored in tx.messages.load(session_id)]
    said = messages[-1].text if messages and messages[-1].role == "assistant" else ""
    match turn.state:
        case "answered":
            return "done", said
        case "stopped":
            return "stopped", said or "It was stopped."
        case "running":
            return "open", said
        case _:
            return "failed", " ".join(filter(None, (turn.error, said)))


def read_delegated_usage(tx: Transaction, session_id: SessionId) -> list[Usage]:
    """Return the usage of each descendant session."""
    children = tx.sessions.find(SessionFilter(source=SOURCE, parent_id=session_id, archived=None, limit=None))
    return [usage for child in children for usage in (child.usage, *read_delegated_usage(tx, child.id))]


def _create_session(tx: Transaction, known: Delegation) -> SessionId:
    parent = tx.sessions.get(known.session_id)
    if parent is None:
        raise NotFound(f"There is no session {known.session_id} any more.")
    created = tx.sessions.create(
        NewSession(
            source=SOURCE,
            owner=parent.owner,
            audience=known.audience or parent.audience,
            model=parent.model,
            parent_id=parent.id,
        )
    )
    write_preferences(tx, created.id, read_preferences(tx, parent.id))
    if known.workspace:
        WORKSPACE.write(tx, created.id, known.workspace)
    return created.id


def _archive_session(tx: Transaction, session_id: SessionId) -> None:
    """End the processes of a finished child session and hide it from session lists."""
    end_processes(tx, session_id)
    if tx.sessions.get(session_id) is not None:
        tx.sessions.update(session_id, SessionChanges(archived=True))


def _replace_child(known: Delegation, number: int, child: ChildTask) -> Delegation:
    children = list(known.children)
    children[number] = child
    return structs.replace(known, children=tuple(children))


def _save(tx: Transaction, delegation: Delegation) -> None:
    row = DelegatedTaskRow(
        key=delegation.key,
        session_id=delegation.session_id,
        background=_is_background(delegation),
        body=_encode(delegation).decode(),
    )
    tx.delegated_tasks.put(row)


def _is_background(delegation: Delegation) -> bool:
    return delegation.key.startswith(_BACKGROUND)


def _build_background_key(session_id: SessionId, handle: str) -> str:
    return f"{_BACKGROUND}{session_id}:{handle}"


def end_background(tx: Transaction, session_id: SessionId) -> None:
    """Mark processes and the agent's delegations to end, in the transaction that leaves a session.

    The processes that run them end them, now or after the next start. Delegations that a person requested continue.
    """
    end_processes(tx, session_id)
    ask_to_stop_all(tx, session_id)
