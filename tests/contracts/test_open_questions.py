"""Open questions of all sessions are found by an index, and only while their turn is running."""

from datetime import UTC, datetime, timedelta

from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import NewSession
from talaria.core.events import ApprovalAsked, QuestionAsked
from talaria.core.ids import SessionId, TurnId, new_id
from talaria.runtime.questions import OPEN_QUESTION, OpenQuestion, list_open_questions


def ask(tx: Transaction, turn_id: str, at: datetime) -> SessionId:
    session = tx.sessions.create(NewSession(source="cli")).id
    OPEN_QUESTION.write(tx, session, OpenQuestion(QuestionAsked("q", "Which?", ("a", "b")), turn_id, at), "q")
    return session


def test_questions_of_all_sessions_are_listed_oldest_first(mine: Transaction) -> None:
    now = datetime.now(UTC)
    turn, other = TurnId(new_id()), TurnId(new_id())
    late, early = ask(mine, turn, now), ask(mine, other, now - timedelta(minutes=1))
    mine.turns.begin(late, turn)
    mine.turns.begin(early, other)
    approval = OpenQuestion(ApprovalAsked("p", "terminal", "rm x", "It deletes."), turn, now + timedelta(seconds=1))
    OPEN_QUESTION.write(mine, late, approval, "p")
    found = list_open_questions(mine)
    assert [(session, question.asked.id) for session, question in found] == [(early, "q"), (late, "q"), (late, "p")]
    assert found[2][1] == approval


def test_question_of_an_ended_turn_is_not_listed(mine: Transaction) -> None:
    turn = TurnId(new_id())
    session = ask(mine, turn, datetime.now(UTC))
    mine.turns.begin(session, turn)
    assert len(list_open_questions(mine)) == 1
    mine.turns.end(turn, "stopped")
    assert list_open_questions(mine) == []


def test_question_outside_of_a_turn_expires(mine: Transaction) -> None:
    ask(mine, "", datetime.now(UTC) - timedelta(hours=1))
    session = ask(mine, "", datetime.now(UTC))
    assert [found for found, _ in list_open_questions(mine)] == [session]


def test_questions_are_deleted_with_their_session(mine: Transaction) -> None:
    session = ask(mine, "", datetime.now(UTC))
    mine.sessions.delete(session)
    assert list_open_questions(mine) == []
