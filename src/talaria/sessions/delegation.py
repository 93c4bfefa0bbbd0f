"""Tasks that a conversation has handed on, in the store: begun once, settled one by one, over with what asked."""

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
from msgspec import Struct, structs

from talaria.agent.conversation import open_calls, results_message
from talaria.agent.dispatch import STOPPED
from talaria.contracts.delegation import Child, ChildState, Task
from talaria.contracts.processes import end_processes
from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import NewSession, SessionChanges, SessionFilter
from talaria.contracts.tool import Call
from talaria.core.errors import NotFound
from talaria.core.ids import SessionId, WorkerId
from talaria.core.messages import Message, Text, ToolResult, Usage
from talaria.core.session_context import SessionContext
from talaria.sessions.lane import arrival
from talaria.sessions.mandate import AT_CALL, BESIDE
from talaria.sessions.preferences import read_preferences, write_preferences
from talaria.sessions.transcripts import PROGRAM

SOURCE = "delegate"
DELEGATIONS = "delegations"  # the topic of hints that something was begun or stopped in the background


class Delegation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Tasks of one call, and all that is needed to work on them wherever the program is started next.

    ``handle`` is there for those in the background. ``surface``, ``folder``, ``workspace``, ``model``, ``tools`` and
    ``context`` are those of the conversation that asked; ``owner`` and ``audience`` those of its place. ``ancestors``
    are it and those that it works for itself, nearest first. ``worker`` is the process that begins with it, ``host``
    the machine that it is bound to, if any. ``said`` are the words of a person who asked for it.
    """

    key: str
    session_id: SessionId
    children: tuple[Child, ...]
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
        """How often this was handed on, counted from the conversation of a person."""
        return len(self.ancestors)

    @property
    def account(self) -> str:
        """Where it is counted what all of its children cost together."""
        return f"delegated:{self.context.turn_id or self.key}"


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Delegation).decode


def call_key(call: Call, tasks: Sequence[Task]) -> str:
    """Return what recognises a call that is made again: its tasks too, for some servers repeat ids within a turn."""
    words = repr((call.id, tasks)).encode("utf-8", "surrogatepass")
    digest = hashlib.sha256(words).hexdigest()[:16]
    return f"{AT_CALL}{call.session_id}:{call.context.turn_id}:{digest}"


def handle_of(key: str) -> str:
    """Return the short name of something in the background."""
    return f"bg-{hashlib.sha256(key.encode()).hexdigest()[:6]}"


def read_delegation(tx: Transaction, key: str) -> Delegation | None:
    """Return what was begun under a key, as far as it has come."""
    entry = tx.state.get(key)
    return _decode(entry.value) if entry else None


def begin(tx: Transaction, wanted: Delegation) -> Delegation:
    """Keep what is handed on, or return what was kept for the same call before."""
    known = read_delegation(tx, wanted.key)
    if known is not None:
        return known
    _put(tx, wanted)
    return wanted


def begin_beside(tx: Transaction, wanted: Delegation) -> Delegation:
    """Keep what is to go on in the background, or return what was kept for the same call before."""
    known = read_delegation(tx, wanted.key)
    if known is not None:
        return known
    begun = structs.replace(wanted, handle=handle_of(wanted.key))
    _put(tx, begun)
    _put(tx, structs.replace(begun, key=_beside_key(begun.session_id, begun.handle)))
    return begun


def put_beside(tx: Transaction, wanted: Delegation) -> str:
    """Keep what a person wants in the background, and return its handle."""
    handle = handle_of(wanted.key)
    _put(tx, structs.replace(wanted, key=_beside_key(wanted.session_id, handle), handle=handle))
    return handle


def in_background(tx: Transaction, session_id: SessionId | None = None) -> list[Delegation]:
    """Return what goes on in the background of a conversation, or of all of them, oldest first."""
    prefix = _beside_key(session_id, "") if session_id else BESIDE
    return sorted((_decode(entry.value) for entry in tx.state.with_prefix(prefix)), key=lambda one: one.began)


def ask_to_stop(tx: Transaction, session_id: SessionId, handle: str) -> Delegation:
    """Let something in the background be stopped by whoever works on it; raises `NotFound` where there is none."""
    found = read_delegation(tx, _beside_key(session_id, handle))
    if found is None:
        raise NotFound(f"Nothing goes on here as `{handle}`; `/background` lists what does.")
    _put(tx, structs.replace(found, stopped=True))
    return found


def ask_to_stop_all(tx: Transaction, session_id: SessionId) -> int:
    """Let all that the agent has begun in the background of a conversation be stopped; return how much that is."""
    found = [one for one in in_background(tx, session_id) if not one.said and not one.stopped]
    for one in found:
        _put(tx, structs.replace(one, stopped=True))
    return len(found)


def forget(tx: Transaction, delegation: Delegation) -> list[SessionId]:
    """Forget what is over, and return the conversations that were cut off with it: they are ended."""
    tx.state.delete(delegation.key)
    if delegation.handle and delegation.key.startswith(AT_CALL):  # it goes on in the background
        return []
    at_work = [one.session_id for one in delegation.children if one.session_id is not None and one.state == "open"]
    return [ended for session_id in at_work for ended in end_child(tx, session_id)]


def begin_child(tx: Transaction, key: str, number: int, words: str) -> SessionId | None:
    """Return the conversation of a child with its task in the inbox, made now if it was not before.

    ``None`` where nobody waits for it any more.
    """
    known = read_delegation(tx, key)
    if known is None or known.stopped:
        return None
    child = known.children[number]
    session_id = child.session_id
    if session_id is None:
        session_id = _new_session(tx, known)
        _put(tx, _with(known, number, structs.replace(child, session_id=session_id)))
    say(tx, session_id, "task", words)
    return session_id


def say(tx: Transaction, session_id: SessionId, what: str, words: str) -> bool:
    """Put words for a child into its inbox, once for each ``what``; ``False`` for what was said before."""
    message = Message(role="user", parts=(Text(words),), at=datetime.now(UTC), author=PROGRAM)
    return tx.inbox.add(arrival(session_id, SOURCE, f"{session_id}:{what}", message)) is not None


def settle_child(tx: Transaction, key: str, number: int, state: ChildState, text: str) -> None:
    """Keep what became of a child and put its conversation away, unless that is known or nobody waits any more."""
    known = read_delegation(tx, key)
    if known is None or known.children[number].state != "open":
        return
    child = structs.replace(known.children[number], state=state, text=text)
    _put(tx, _with(known, number, child))
    if child.session_id is not None:
        _put_away(tx, child.session_id)


def end_child(tx: Transaction, session_id: SessionId) -> list[SessionId]:
    """End what was cut off in the conversation of a child, in valid form; return it and all that worked for it."""
    ended = [session_id, *close_calls(tx, session_id)]
    messages = [stored.message for stored in tx.messages.load(session_id)]
    for turn in tx.turns.find(session_id, running=True):
        if unanswered := open_calls(messages):
            results = [ToolResult(call.id, STOPPED, failed=True) for call in unanswered]
            tx.messages.append(session_id, [results_message(results, datetime.now(UTC))])
        tx.turns.end(turn.id, "stopped")
    tx.inbox.settle([item.id for item in tx.inbox.unsettled(session_id)])
    _put_away(tx, session_id)
    return ended


def close_calls(tx: Transaction, session_id: SessionId) -> list[SessionId]:
    """End what a conversation has handed on and waits for no more, and return all that was cut off so."""
    found = [_decode(entry.value) for entry in tx.state.with_prefix(f"{AT_CALL}{session_id}:")]
    return [ended for one in found for ended in forget(tx, one)]


def last_turn(tx: Transaction, session_id: SessionId) -> tuple[ChildState, str]:
    """Return how the last turn of a child ended, and what it said then."""
    turns = tx.turns.find(session_id, limit=1)
    if not turns:
        return "failed", "It was never begun."
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


def delegated_usage(tx: Transaction, session_id: SessionId) -> list[Usage]:
    """Return what each child of a conversation has used, and each that worked for one of those."""
    children = tx.sessions.find(SessionFilter(source=SOURCE, parent_id=session_id, archived=None, limit=None))
    return [usage for child in children for usage in (child.usage, *delegated_usage(tx, child.id))]


def _new_session(tx: Transaction, known: Delegation) -> SessionId:
    parent = tx.sessions.get(known.session_id)
    if parent is None:
        raise NotFound(f"There is no session {known.session_id} any more.")
    made = tx.sessions.create(
        NewSession(
            source=SOURCE,
            owner=parent.owner,
            audience=known.audience or parent.audience,
            model=parent.model,
            parent_id=parent.id,
        )
    )
    write_preferences(tx, made.id, read_preferences(tx, parent.id))
    if known.workspace:
        tx.state.put(f"workspace:{made.id}", known.workspace)
    return made.id


def _put_away(tx: Transaction, session_id: SessionId) -> None:
    """Let a conversation that is over not stand in the way of those of people, and its processes end."""
    end_processes(tx, session_id)
    if tx.sessions.get(session_id) is not None:
        tx.sessions.update(session_id, SessionChanges(archived=True))


def _with(known: Delegation, number: int, child: Child) -> Delegation:
    children = list(known.children)
    children[number] = child
    return structs.replace(known, children=tuple(children))


def _put(tx: Transaction, delegation: Delegation) -> None:
    tx.state.put(delegation.key, _encode(delegation).decode())


def _beside_key(session_id: SessionId, handle: str) -> str:
    return f"{BESIDE}{session_id}:{handle}"
