"""Branches have the messages up to a point, and a copy of the session's values."""

from datetime import timedelta
from functools import partial

import pytest
from tests.contracts.sample_messages import text_message, texts

from talaria.agent.context_window import make_pictures_message
from talaria.contracts.store import Database, Transaction
from talaria.contracts.stores.sessions import NewSession, Session, SessionChanges
from talaria.contracts.stores.turns import Cap
from talaria.contracts.turns import Summary
from talaria.core.errors import NotFound
from talaria.core.ids import SessionId
from talaria.core.messages import Message
from talaria.sessions.branches import create_branch, is_empty_branch, list_ancestors, list_exchanges, session_account
from talaria.sessions.model_context import PREFIX_BREAK, SUMMARY, StoredSummary, read_summary
from talaria.sessions.titles import find_free_title
from talaria.testing.clock import NOON

DIALOGUE = (
    text_message("one"),
    text_message("first", "assistant"),
    text_message("two"),
    text_message("second", "assistant"),
)


def create_session(tx: Transaction, *messages: Message) -> Session:
    session = tx.sessions.create(NewSession(source="cli", title="Trip", owner="ana", model="large"))
    tx.messages.append(session.id, messages or DIALOGUE)
    return session


def _values(tx: Transaction, session_id: SessionId, names: tuple[str, ...]) -> list[str]:
    return [row.value for name in names if (row := tx.session_values.get(session_id, name, ""))]


def stored_texts(database: Database, session_id: SessionId) -> list[tuple[int, str]]:
    return texts(database.read(lambda tx: tx.messages.load(session_id)))


def test_branch_shares_earlier_messages_but_no_later_ones(database: Database) -> None:
    origin = database.write(create_session)
    branch = database.write(lambda tx: create_branch(tx, origin.id, 2, "Trip, again"))
    database.write(lambda tx: tx.messages.append(branch.id, [text_message("three")]))
    database.write(lambda tx: tx.messages.append(origin.id, [text_message("else")]))
    assert stored_texts(database, branch.id) == [(1, "one"), (2, "first"), (3, "three")]
    assert (branch.title, branch.owner, branch.model, branch.source) == ("Trip, again", "ana", "large", "cli")
    assert (branch.parent_id, branch.parent_seq) == (origin.id, 2)


def test_branch_copies_the_values_of_the_session(database: Database) -> None:
    origin = database.write(create_session)
    names = ("prompt_prefix", "workspace", "grants", "preferences", "todo")

    def prepare(tx: Transaction) -> None:
        for subject in names:
            tx.session_values.put(origin.id, subject, "", f"the {subject}")

    database.write(prepare)
    branch = database.write(lambda tx: create_branch(tx, origin.id, 2, ""))
    for session_id in (origin.id, branch.id):
        values = database.read(partial(_values, session_id=session_id, names=names))
        assert values == [f"the {subject}" for subject in names]


@pytest.mark.parametrize(("upto", "carried"), [(1, False), (2, True), (3, True)])
def test_a_summary_is_copied_unless_it_covers_unshared_messages(database: Database, upto: int, carried: bool) -> None:
    origin = database.write(create_session)
    summary = StoredSummary(Summary(2, "They spoke of numbers."), shown=True)
    database.write(lambda tx: SUMMARY.write(tx, origin.id, summary))
    branch = database.write(lambda tx: create_branch(tx, origin.id, upto, ""))
    assert database.read(lambda tx: read_summary(tx, branch.id)) == (summary if carried else None)
    breaks = database.read(lambda tx: tx.events.after(f"session:{branch.id}", 0))
    assert [event.kind for event in breaks] == ([] if carried else [PREFIX_BREAK])


def test_branch_of_a_branch_has_the_messages_of_all_its_ancestors(database: Database) -> None:
    origin = database.write(create_session)
    first = database.write(lambda tx: create_branch(tx, origin.id, 4, ""))
    database.write(lambda tx: tx.messages.append(first.id, [text_message("three"), text_message("third", "assistant")]))
    later = database.write(lambda tx: create_branch(tx, first.id, 5, ""))
    earlier = database.write(lambda tx: create_branch(tx, later.id, 2, ""))
    assert (later.parent_id, earlier.parent_id) == (first.id, origin.id)
    assert database.read(lambda tx: list_ancestors(tx, later)) == (first.id, origin.id)
    assert database.read(lambda tx: list_ancestors(tx, earlier)) == (origin.id,)
    assert stored_texts(database, later.id)[-1] == (5, "three")
    assert stored_texts(database, earlier.id) == [(1, "one"), (2, "first")]
    database.write(lambda tx: tx.sessions.delete(origin.id))
    assert stored_texts(database, earlier.id) == [(1, "one"), (2, "first")]
    assert stored_texts(database, later.id)[0] == (1, "one")


def test_a_branch_from_the_very_beginning_is_empty(database: Database) -> None:
    origin = database.write(create_session)
    branch = database.write(lambda tx: create_branch(tx, origin.id, 0, ""))
    assert stored_texts(database, branch.id) == []
    assert branch.parent_id == origin.id
    assert is_empty_branch(branch)


def test_branch_inherits_the_amount_spent(database: Database) -> None:
    origin = database.write(create_session)
    cap = Cap(session_account(origin.id), 1_000)
    hold = database.write(lambda tx: tx.ledger.reserve([cap], 700, timedelta(minutes=1)))
    database.write(lambda tx: tx.ledger.settle(hold, 600))
    branch = database.write(lambda tx: create_branch(tx, origin.id, 2, ""))
    assert database.read(lambda tx: tx.ledger.read_spent(session_account(branch.id))) == 600


def test_branching_an_unknown_session_or_message_is_refused(database: Database) -> None:
    origin = database.write(create_session)
    with pytest.raises(NotFound):
        database.write(lambda tx: create_branch(tx, SessionId("nowhere"), 1, ""))
    with pytest.raises(NotFound):
        database.write(lambda tx: create_branch(tx, origin.id, 99, ""))


def test_exchanges_start_with_messages_of_people(database: Database) -> None:
    pictures = make_pictures_message([], NOON)
    messages = (
        text_message("one"),
        text_message("", "assistant"),
        text_message("result", "tool"),
        pictures,
        text_message("done", "assistant"),
    )
    origin = database.write(lambda tx: create_session(tx, *messages, text_message("two")))
    exchanges = list_exchanges(database.read(lambda tx: tx.messages.load(origin.id)))
    assert texts(exchanges) == [(1, "one"), (6, "two")]


def test_free_titles_with_a_suffix_are_numbered(database: Database) -> None:
    def create_titled_session(tx: Transaction) -> str:
        title = find_free_title(tx, "100% Trip_", "before undo", owner="ana")
        session = create_session(tx)
        return tx.sessions.update(session.id, SessionChanges(title=title)).title

    assert [database.write(create_titled_session) for _ in range(3)] == [
        "100% Trip_ (before undo)",
        "100% Trip_ (before undo 2)",
        "100% Trip_ (before undo 3)",
    ]
    assert database.read(
        lambda tx: find_free_title(tx, "100% Trip_ (before undo 2)", "before undo", owner="ana")
    ).endswith("undo 4)")
