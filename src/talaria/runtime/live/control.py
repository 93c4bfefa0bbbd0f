"""Watchers of running turns, and the control messages that they send, as rows of the store."""

from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import assert_never

from msgspec import Struct

from talaria.contracts.store import Store, Transaction
from talaria.contracts.values import SessionValue
from talaria.core.addresses import ReplyRoute
from talaria.core.ids import SessionId, TurnId, new_id
from talaria.runtime.open_session import OpenSession
from talaria.runtime.turns import redirect_reply

LIVE = "live"  # topic notified when a running turn gets or loses a watcher, or gets a control message
WATCH_LEASE = timedelta(seconds=20)


class StopTurn(Struct, frozen=True, tag="stop"):
    """Command to stop the turn; completed steps are kept."""


class AnswerQuestion(Struct, frozen=True, tag="answer"):
    """Answer to a question of the turn."""

    question_id: str
    text: str


class InboxChanged(Struct, frozen=True, tag="nudge"):
    """Notice of a new inbox item, possibly steering for the turn."""

    steered: bool = False


class SessionMoved(Struct, frozen=True, tag="moved"):
    """Notice that the session was moved and its reply redirected; ``move`` identifies the redirection."""

    move: str


ControlCommand = StopTurn | AnswerQuestion | InboxChanged | SessionMoved


class ControlMessage(Struct, frozen=True):
    """A command and the turn that it is for."""

    turn_id: TurnId
    word: ControlCommand


LIVE_WATCH = SessionValue("live_watch", datetime)  # until when, by watcher
CONTROL_MESSAGE = SessionValue("control_message", ControlMessage)  # by id


def live_stream(session_id: SessionId) -> str:
    """Return the event stream of a session, which is also the topic of its watchers."""
    return f"live:{session_id}"


def renew_watch(tx: Transaction, session_id: SessionId, watcher: str) -> bool:
    """Register or renew a watcher for ``WATCH_LEASE``; return whether it was registered before."""
    return LIVE_WATCH.write(tx, session_id, datetime.now(UTC) + WATCH_LEASE, watcher) > 1


def end_watch(tx: Transaction, session_id: SessionId, watcher: str) -> None:
    """Remove a watcher; with the last one, drop the session's stream."""
    LIVE_WATCH.delete(tx, session_id, watcher)
    if not list_watchers(tx).get(session_id):
        tx.events.drop(live_stream(session_id))


def list_watchers(tx: Transaction, *, lapsed: bool = False) -> Mapping[SessionId, Collection[str]]:
    """Return the watchers by session; with ``lapsed``, those whose registration has expired."""
    now = datetime.now(UTC)
    found: dict[SessionId, set[str]] = {}
    for session_id, watcher, until in LIVE_WATCH.of_all(tx):
        if (until <= now) is lapsed:
            found.setdefault(session_id, set()).add(watcher)
    return found


def remove_lapsed_watches(tx: Transaction) -> None:
    """Remove watchers whose registration has expired, and the streams left without watchers."""
    for session_id, lapsed_watchers in list_watchers(tx, lapsed=True).items():
        for watcher in lapsed_watchers:
            end_watch(tx, session_id, watcher)


def post_control_message(tx: Transaction, session_id: SessionId, word: ControlCommand) -> bool:
    """Send a control message to the running turn of a session, in any process; ``False`` if none."""
    for turn in tx.turns.find(session_id, running=True, limit=1):
        CONTROL_MESSAGE.write(tx, session_id, ControlMessage(turn.id, word), new_id())
        tx.notify(LIVE)
        return True
    return False


def redirect_running_turn(tx: Transaction, session_id: SessionId, route: ReplyRoute | None) -> TurnId | None:
    """Redirect the reply of a session's running turn and notify its process.

    Returns the id of that turn, or ``None`` if none is running.
    """
    redirect = redirect_reply(tx, session_id, route)
    if redirect is None:
        return None
    post_control_message(tx, session_id, SessionMoved(redirect.move))
    return redirect.turn_id


async def send_control_message(store: Store, session_id: SessionId, word: ControlCommand) -> bool:
    """Send a control message in its own transaction; ``False`` if no turn is running."""
    return await store.write(lambda tx: post_control_message(tx, session_id, word))


def list_addressed_sessions(tx: Transaction) -> set[SessionId]:
    """Return the sessions that have undelivered control messages."""
    return set(CONTROL_MESSAGE.sessions(tx))


def take_control_messages(tx: Transaction, sessions: Collection[SessionId]) -> list[tuple[SessionId, ControlMessage]]:
    """Remove and return the control messages for these sessions, oldest first."""
    taken = []
    for session_id, item, message in CONTROL_MESSAGE.of_all(tx):
        if session_id in sessions:
            CONTROL_MESSAGE.delete(tx, session_id, item)
            taken.append((session_id, message))
    return taken


def apply_control_message(command: ControlCommand, chat: OpenSession, on_moved: Callable[[], None] | None) -> None:
    """Apply a control message to the running turn; ``on_moved`` is called if its session has moved."""
    match command:
        case StopTurn():
            if chat.conversation.turn is not None:  # otherwise the next turn would be stopped
                chat.conversation.stop()
        case AnswerQuestion(question_id=question_id, text=text):
            chat.questions.answer(question_id, text)
        case InboxChanged(steered=steered):
            chat.conversation.wake(steered=steered)
        case SessionMoved(move=move):
            turn = chat.conversation.turn
            if on_moved is not None and turn is not None and turn.move != move:
                on_moved()
        case _:
            assert_never(command)
