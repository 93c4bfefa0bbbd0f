"""Sessions: titles, lineage, owners and usage."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec import structs
from tests.contracts.sample_messages import text_message, texts
from tests.contracts.session_leases import claim_session_lease

from talaria.contracts.jobs import Job
from talaria.contracts.store import Database, Transaction
from talaria.contracts.stores.queues import Arrival, Outgoing
from talaria.contracts.stores.responses import ApiRun, StoredResponse
from talaria.contracts.stores.sessions import NewSession, SessionChanges, SessionFilter, Viewer
from talaria.contracts.stores.turns import Cap, DelegatedTaskRow, ProcessRow
from talaria.core.addresses import Address
from talaria.core.errors import NotFound
from talaria.core.ids import JobId, SessionId, WorkerId, new_session_id, new_turn_id
from talaria.core.messages import Usage
from talaria.testing.clock import NOON, SettableClock

MINUTE = timedelta(minutes=1)


def find_titles(tx: Transaction, matching: str) -> list[str]:
    """Return the titles of matching sessions."""
    return [session.title for session in tx.sessions.find(SessionFilter(matching=matching))]


def test_new_session_has_the_given_fields(mine: Transaction) -> None:
    new = NewSession(source="cli", title="Trip", owner="ana", audience="family", model="large")
    session = mine.sessions.create(new)
    assert (session.source, session.title, session.owner, session.audience, session.model) == (
        "cli",
        "Trip",
        "ana",
        "family",
        "large",
    )
    assert (session.created_at, session.updated_at, session.archived_at) == (NOON, NOON, None)
    assert (session.parent_id, session.message_count, session.usage) == (None, 0, Usage())
    assert mine.sessions.get(session.id) == session


def test_session_can_be_created_with_a_chosen_id(mine: Transaction) -> None:
    assert mine.sessions.create(NewSession(source="api", id=SessionId("chosen"))).id == "chosen"


def test_unknown_session_is_none(mine: Transaction) -> None:
    assert mine.sessions.get(SessionId("nowhere")) is None


def test_session_with_an_unknown_parent_is_refused(mine: Transaction) -> None:
    with pytest.raises(NotFound):
        mine.sessions.create(NewSession(source="cli", parent_id=SessionId("nowhere")))


def test_branch_from_a_missing_message_is_refused(mine: Transaction) -> None:
    parent = mine.sessions.create(NewSession(source="cli")).id
    mine.messages.append(parent, [text_message("one")])
    with pytest.raises(NotFound):
        mine.sessions.create(NewSession(source="cli", parent_id=parent, parent_seq=2))
    assert mine.sessions.find(SessionFilter(parent_id=parent)) == []


def test_child_without_a_start_message_shares_no_messages(mine: Transaction) -> None:
    parent = mine.sessions.create(NewSession(source="cli")).id
    mine.messages.append(parent, [text_message("one")])
    child = mine.sessions.create(NewSession(source="cli", parent_id=parent))
    assert (child.parent_id, child.message_count) == (parent, 0)
    assert mine.messages.load(child.id) == []
    assert mine.messages.append(child.id, [text_message("first")]) == 1


def test_branch_shares_earlier_messages_and_then_diverges(mine: Transaction) -> None:
    parent = mine.sessions.create(NewSession(source="cli")).id
    mine.messages.append(parent, [text_message("a"), text_message("b"), text_message("c")])
    branch = mine.sessions.create(NewSession(source="cli", parent_id=parent, parent_seq=2))
    assert branch.message_count == 2
    assert mine.messages.append(branch.id, [text_message("x")]) == 3
    mine.messages.append(parent, [text_message("d")])
    assert texts(mine.messages.load(branch.id)) == [(1, "a"), (2, "b"), (3, "x")]
    assert texts(mine.messages.load(parent)) == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]
    assert {message.session_id for message in mine.messages.load(branch.id)} == {branch.id}


def family(tx: Transaction) -> tuple[SessionId, SessionId, SessionId, SessionId]:
    """Return a root (a b c), its branch at 2 (a b d e), a late branch of that at 3 and an early one at 1."""
    root = tx.sessions.create(NewSession(source="cli")).id
    tx.messages.append(root, [text_message("a"), text_message("b"), text_message("c")])
    branch = tx.sessions.create(NewSession(source="cli", parent_id=root, parent_seq=2)).id
    tx.messages.append(branch, [text_message("d"), text_message("e")])
    late = tx.sessions.create(NewSession(source="cli", parent_id=branch, parent_seq=3)).id
    tx.messages.append(late, [text_message("f")])
    early = tx.sessions.create(NewSession(source="cli", parent_id=branch, parent_seq=1)).id
    tx.messages.append(early, [text_message("g")])
    return root, branch, late, early


LATE = [(1, "a"), (2, "b"), (3, "d"), (4, "f")]
EARLY = [(1, "a"), (2, "g")]


def test_branches_of_branches_share_messages_of_all_ancestors(mine: Transaction) -> None:
    _, branch, late, early = family(mine)
    assert texts(mine.messages.load(branch)) == [(1, "a"), (2, "b"), (3, "d"), (4, "e")]
    assert texts(mine.messages.load(late)) == LATE
    assert texts(mine.messages.load(early)) == EARLY


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["root first", "branch first"])
def test_branches_retain_shared_messages_when_ancestors_are_deleted(mine: Transaction, order: tuple[int, int]) -> None:
    root, branch, late, early = family(mine)
    for index in order:
        assert mine.sessions.delete((root, branch)[index])
    assert texts(mine.messages.load(late)) == LATE
    assert texts(mine.messages.load(early)) == EARLY
    assert texts(mine.messages.last(late, 2)) == LATE[2:]
    assert mine.messages.append(late, [text_message("h")]) == 5


def test_branch_of_a_deleted_branch_becomes_a_child_of_the_root(mine: Transaction) -> None:
    root, branch, late, early = family(mine)
    mine.sessions.delete(branch)
    lineage = {one: mine.sessions.get(one) for one in (late, early)}
    assert {one: (session.parent_id, session.parent_seq) for one, session in lineage.items() if session} == {
        late: (root, 2),
        early: (root, 1),
    }


def test_deleting_a_branch_does_not_change_its_parent(mine: Transaction) -> None:
    root, branch, _, _ = family(mine)
    mine.sessions.delete(branch)
    assert texts(mine.messages.load(root)) == [(1, "a"), (2, "b"), (3, "c")]


def test_deleting_a_session_deletes_its_rows_in_every_table(mine: Transaction) -> None:
    """Only running background work and the history of jobs still name the session afterwards."""
    session = mine.sessions.create(NewSession(source="cli")).id
    _fill_every_table(mine, session)
    claim = mine.leases.get(f"session:{session}")
    with_session = {table for table in mine.archive.tables() if "session_id" in mine.archive.columns(table)}
    named = _tables_that_name(mine, session)
    assert with_session <= named, "fill the new table too, and decide what happens to its rows"

    assert mine.sessions.delete(session)
    assert not mine.sessions.delete(session)
    assert _tables_that_name(mine, session) == {"background_processes", "delegated_tasks", "job_runs"}
    assert [row.key for row in mine.delegated_tasks.in_background()] == ["background:1"]
    assert mine.delegated_tasks.of_session(session, background=False) == []
    assert claim is not None
    assert mine.leases.get(claim.name) is None
    emptied = ("messages", "steps", "streams", "events")
    assert [table for table in emptied if list(mine.archive.rows(table))] == []


def _fill_every_table(tx: Transaction, session: SessionId) -> None:
    turn = new_turn_id()
    tx.messages.append(session, [text_message("a")])
    tx.bindings.bind("key", session, Address("telegram", "1"))
    tx.handoffs.request_handoff(session, "telegram")
    tx.inbox.add(Arrival(session_id=session, source="telegram", external_id="1", payload=""))
    assert claim_session_lease(tx, MINUTE) is not None
    tx.turns.begin(session, turn)
    tx.turns.begin_step(turn, "tool", "read", "{}")
    tx.outbox.add(Outgoing(key="k", session_id=session, address=Address("telegram", "1"), payload=""))
    tx.completions.add(session, "process", "1", "")
    tx.session_values.put(session, "goal", "", "rest")
    tx.session_values.put(session, "run_answer", "q1", "yes")
    tx.forwarded_updates.add(WorkerId("other"), session, "{}")
    tx.processes.add(ProcessRow(id="p", session_id=session, alive=True, body="{}"))
    for key, background in (("delegation:1", False), ("background:1", True)):
        tx.delegated_tasks.put(DelegatedTaskRow(key=key, session_id=session, background=background, body="{}"))
    tx.responses.put(StoredResponse(id="r", session_id=session, body="{}"))
    assert tx.responses.name_conversation("mine", session, former=None)
    tx.runs.create(ApiRun(id="run", session_id=session, request="{}"))
    tx.events.append("run:run", [("a", "")])
    for subject in ("session", "goal", "live"):
        tx.events.append(f"{subject}:{session}", [("a", "")])
    tx.ledger.reserve([Cap(f"session:{session}", 100)], 5, MINUTE)
    job = Job(id=JobId("j"), name="J", schedule="", payload="", next_at=datetime(2026, 1, 1, tzinfo=UTC))
    tx.jobs.put(job)
    run = tx.jobs.begin_run(job, next_at=None)
    assert run is not None
    tx.jobs.end_run(structs.replace(run, state="done", session_id=session))


def _tables_that_name(tx: Transaction, session: SessionId) -> set[str]:
    tables = tx.archive.tables()
    return {table for table in tables if any(session in str(cell) for row in tx.archive.rows(table) for cell in row)}


def test_deleting_a_session_does_not_change_sessions_with_similar_ids(mine: Transaction) -> None:
    ids = [SessionId("ab"), SessionId("AB"), SessionId("xab"), SessionId("a_")]
    for one in ids:
        mine.sessions.create(NewSession(source="cli", id=one))
        mine.messages.append(one, [text_message("a")])
        mine.session_values.put(one, "goal", "", "rest")
        mine.events.append(f"session:{one}", [("a", "")])
    mine.sessions.delete(SessionId("a_"))
    mine.sessions.delete(SessionId("ab"))
    assert sorted(one for one, _, _ in mine.session_values.of_all("goal")) == ["AB", "xab"]
    assert [len(mine.messages.load(one)) for one in ids] == [0, 1, 1, 0]
    assert [len(mine.events.after(f"session:{one}", 0)) for one in ids] == [0, 1, 1, 0]


def test_update_changes_only_the_given_fields(mine: Transaction, clock: SettableClock) -> None:
    session = mine.sessions.create(NewSession(source="cli", title="Old", owner="ana"))
    changed = mine.sessions.update(session.id, SessionChanges(title="New", model="small"))
    assert (changed.title, changed.model, changed.owner) == ("New", "small", "ana")
    clock.advance(MINUTE)
    archived = mine.sessions.update(session.id, SessionChanges(archived=True, owner="", audience="all"))
    assert (archived.archived_at, archived.owner, archived.audience) == (NOON + MINUTE, "", "all")
    assert mine.sessions.update(session.id, SessionChanges(archived=False)).archived_at is None
    assert mine.sessions.update(session.id, SessionChanges()) == mine.sessions.get(session.id)


def test_an_unknown_session_cannot_be_changed(mine: Transaction) -> None:
    with pytest.raises(NotFound):
        mine.sessions.update(SessionId("nowhere"), SessionChanges(title="New"))


def test_usage_of_a_session_is_summed(mine: Transaction) -> None:
    session = mine.sessions.create(NewSession(source="cli")).id
    mine.usage.add(session, Usage(1, 2, 3, 4, 5, 6, 7))
    mine.usage.add(session, Usage(10, 20, 30, 40, 50, 60, 2**40))
    changed = mine.sessions.get(session)
    assert changed is not None
    assert changed.usage == Usage(11, 22, 33, 44, 55, 66, 2**40 + 7)


def test_sessions_are_listed_last_used_first(mine: Transaction, clock: SettableClock) -> None:
    ids = []
    for title in "abc":
        ids.append(mine.sessions.create(NewSession(source="cli", title=title)).id)
        clock.advance(MINUTE)
    mine.messages.append(ids[0], [text_message("hello")])
    assert find_titles(mine, "") == ["a", "c", "b"]


def test_sessions_are_filtered(mine: Transaction, clock: SettableClock) -> None:
    root = mine.sessions.create(NewSession(source="cli", title="a", owner="ana"))
    clock.advance(MINUTE)
    mine.sessions.create(NewSession(source="telegram", title="b", owner="ana", parent_id=root.id))
    mine.sessions.create(NewSession(source="telegram", title="c"))
    archived = mine.sessions.create(NewSession(source="cli", title="d"))
    mine.sessions.update(archived.id, SessionChanges(archived=True))
    expected = {
        SessionFilter(source="telegram"): ["c", "b"],
        SessionFilter(owner="ana"): ["b", "a"],
        SessionFilter(owner=""): ["c"],
        SessionFilter(parent_id=root.id): ["b"],
        SessionFilter(updated_before=NOON + MINUTE): ["a"],
        SessionFilter(archived=True): ["d"],
        SessionFilter(archived=None): ["d", "c", "b", "a"],
        SessionFilter(limit=1): ["c"],
        SessionFilter(source="telegram", owner="ana"): ["b"],
    }
    assert {filters: [one.title for one in mine.sessions.find(filters)] for filters in expected} == expected


def test_sessions_are_visible_to_their_owner_and_audience(mine: Transaction) -> None:
    group = "telegram/9"
    for owner, audience, title in (("ana", "", "a"), ("ana", group, "b"), ("ben", group, "c"), ("", group, "d")):
        mine.sessions.create(NewSession(source="cli", title=title, owner=owner, audience=audience))
    expected = {Viewer("ana"): "ab", Viewer("ana", group): "b", Viewer(): "d", Viewer("ana", "telegram/8"): ""}
    for viewer, titles in expected.items():
        visible = mine.sessions.find(SessionFilter(seen_by=viewer))
        assert sorted(one.title for one in visible) == list(titles)
        assert all(mine.sessions.find(SessionFilter(id=one.id, seen_by=viewer)) == [one] for one in visible)
    private = mine.sessions.find(SessionFilter(matching="a"))[0]
    assert mine.sessions.find(SessionFilter(id=private.id, seen_by=Viewer("ana", group))) == []
    assert mine.sessions.find(SessionFilter(matching=private.id, seen_by=Viewer("ben"))) == []


def test_fifty_sessions_are_listed_unless_the_limit_is_none(mine: Transaction, database: Database) -> None:
    database.write(lambda tx: [tx.sessions.create(NewSession(source="cli")) for _ in range(55)])
    assert len(mine.sessions.find(SessionFilter())) == 50
    assert len(mine.sessions.find(SessionFilter(limit=None))) == 55


def test_session_is_found_by_its_id_or_a_prefix_of_it(mine: Transaction) -> None:
    for session_id in ("0abc1", "0abc12", "0xyz"):
        mine.sessions.create(NewSession(source="cli", id=SessionId(session_id), title=session_id))
    assert sorted(find_titles(mine, "0ab")) == ["0abc1", "0abc12"]
    assert find_titles(mine, "0abc1") == ["0abc1"]
    assert find_titles(mine, "abc") == ["0abc12", "0abc1"]


def test_id_prefix_is_matched_literally(mine: Transaction) -> None:
    for number, session_id in enumerate(("axb1", "a_b2", "a%b3", "Ab4")):
        mine.sessions.create(NewSession(source="cli", id=SessionId(session_id), title=str(number)))
    assert {typed: find_titles(mine, typed) for typed in ("a_", "a%", "ab", "A")} == {
        "a_": ["1"],
        "a%": ["2"],
        "ab": [],
        "A": ["3"],
    }


def test_a_session_is_found_by_a_part_of_its_title_in_any_case(mine: Transaction) -> None:
    for title in ("Summer in Köln", "100% done", "snake_case", "back\\slash", "ΑΘΗΝΑ", "Straße", "東京への旅"):
        mine.sessions.create(NewSession(source="cli", title=title))
    assert {
        typed: find_titles(mine, typed) for typed in ("KÖLN", "%", "_", "\\", "αθη", "STRASSE", "京へ", "no%one")
    } == {
        "KÖLN": ["Summer in Köln"],
        "%": ["100% done"],
        "_": ["snake_case"],
        "\\": ["back\\slash"],
        "αθη": ["ΑΘΗΝΑ"],
        "STRASSE": ["Straße"],
        "京へ": ["東京への旅"],
        "no%one": [],
    }


def test_exact_title_match_excludes_partial_matches(mine: Transaction) -> None:
    for title in ("Trip", "Trip to Rome", "A trip"):
        mine.sessions.create(NewSession(source="cli", title=title))
    assert find_titles(mine, "trip") == ["Trip"]
    assert sorted(find_titles(mine, "tri")) == ["A trip", "Trip", "Trip to Rome"]


def test_sessions_are_filtered_by_whether_they_have_a_title(mine: Transaction) -> None:
    named = mine.sessions.create(NewSession(source="cli", title="Trip"))
    bare = mine.sessions.create(NewSession(source="cli"))
    assert [one.id for one in mine.sessions.find(SessionFilter(titled=True))] == [named.id]
    assert [one.id for one in mine.sessions.find(SessionFilter(titled=False))] == [bare.id]


def test_matching_is_combined_with_other_filters(mine: Transaction) -> None:
    mine.sessions.create(NewSession(source="cli", title="Trip"))
    mine.sessions.create(NewSession(source="telegram", title="Trip to Rome"))
    filters = SessionFilter(matching="trip", source="telegram")
    assert [session.title for session in mine.sessions.find(filters)] == ["Trip to Rome"]


def test_matching_uses_the_changed_title(mine: Transaction) -> None:
    session = mine.sessions.create(NewSession(source="cli", title="Old", id=new_session_id())).id
    mine.sessions.update(session, SessionChanges(title="NEU"))
    assert (find_titles(mine, "old"), find_titles(mine, "neu")) == ([], ["NEU"])


def test_imported_session_has_its_original_times(mine: Transaction) -> None:
    begun, used = datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC), datetime(2025, 2, 3, 4, 5, 6, tzinfo=UTC)
    session = mine.sessions.create(NewSession(source="cli", created_at=begun))
    assert (session.created_at, session.updated_at) == (begun, begun)
    changed = mine.sessions.update(session.id, SessionChanges(updated_at=used))
    assert (changed.created_at, changed.updated_at) == (begun, used)
