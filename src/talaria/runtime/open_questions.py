"""Index of the open questions and approvals of all sessions, for surfaces that list them."""

import asyncio
import logging
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from talaria.contracts.store import Store, Transaction
from talaria.contracts.values import SessionValue
from talaria.core.errors import StoreError
from talaria.core.events import TurnEvent
from talaria.core.ids import SessionId
from talaria.runtime.open_session import OpenSession
from talaria.runtime.questions import AskedEvent

QUESTIONS = "questions"  # topic notified when a question is asked or closed
_OUTSIDE_LIFE = timedelta(minutes=10)  # of a question outside of turns, whose process may be gone

log = logging.getLogger(__name__)


class OpenQuestion(Struct, frozen=True):
    """A question that waits for an answer; ``turn_id`` is empty if it was asked outside of turns."""

    asked: AskedEvent
    turn_id: str
    at: datetime


OPEN_QUESTION = SessionValue("open_question", OpenQuestion)  # by the id of the question


def index_questions(store: Store, chat: OpenSession, jobs: asyncio.TaskGroup) -> None:
    """Store each question of a session as long as it is open."""
    session_id = chat.conversation.session_id

    async def follow(event: AskedEvent, turn_id: str) -> None:
        question = OpenQuestion(event, turn_id, datetime.now(UTC))
        try:
            await store.write(lambda tx: _add(tx, session_id, question))
            await chat.questions.closed(event.id)
        except StoreError as error:
            log.info("session %s: a question isn't listed: %s", session_id, error)
        finally:
            await asyncio.shield(_close(store, session_id, event.id))

    def on_event(event: TurnEvent) -> None:
        if isinstance(event, AskedEvent):
            turn = chat.conversation.turn
            following = follow(event, turn.turn_id if turn else "")
            try:
                jobs.create_task(following)
            except RuntimeError:  # the session is being closed
                following.close()

    chat.events.subscribe(on_event)


def list_open_questions(tx: Transaction) -> list[tuple[SessionId, OpenQuestion]]:
    """Return the open questions of all sessions, oldest first; those of a process that is gone are left out."""
    found = OPEN_QUESTION.of_all(tx)
    running = {turn.id for turn in tx.turns.find(running=True)} if found else set()
    now = datetime.now(UTC)
    is_open = [
        (session_id, question)
        for session_id, _, question in found
        if (question.turn_id in running if question.turn_id else now - question.at < _OUTSIDE_LIFE)
    ]
    return sorted(is_open, key=lambda one: one[1].at)


def _add(tx: Transaction, session_id: SessionId, question: OpenQuestion) -> None:
    """Store a question; those that an earlier turn has left are removed."""
    if tx.sessions.get(session_id) is None:
        return
    for item, stored in OPEN_QUESTION.items(tx, session_id).items():
        if stored.turn_id != question.turn_id:
            OPEN_QUESTION.delete(tx, session_id, item)
    OPEN_QUESTION.write(tx, session_id, question, question.asked.id)
    tx.notify(QUESTIONS)


async def _close(store: Store, session_id: SessionId, question_id: str) -> None:
    def delete(tx: Transaction) -> None:
        if OPEN_QUESTION.delete(tx, session_id, question_id):
            tx.notify(QUESTIONS)

    try:
        await store.write(delete)
    except StoreError as error:
        log.debug("session %s: a closed question stays listed: %s", session_id, error)
