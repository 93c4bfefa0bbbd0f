"""Stored responses, idempotency keys, runs and conversation names of the API."""

from datetime import timedelta

from msgspec.structs import replace

from talaria.contracts.store import Transaction
from talaria.contracts.stores.responses import ApiRun, ApiRunState, IdempotentAnswer, StoredResponse
from talaria.core.ids import SessionId
from talaria.testing.clock import NOON, SettableClock

DAY = timedelta(days=1)
ONE = SessionId("one")


def test_response_is_stored_unchanged(mine: Transaction) -> None:
    response = StoredResponse(id="r2", session_id=ONE, body='{"a": 1}', conversation="trip", previous_id="r1")
    mine.responses.put(response)
    assert mine.responses.get("r2") == response
    assert mine.responses.get("r3") is None


def test_storing_a_response_again_replaces_its_body(mine: Transaction) -> None:
    response = StoredResponse(id="r", session_id=ONE, body="in progress")
    mine.responses.put(response)
    mine.responses.put(replace(response, body="completed"))
    stored = mine.responses.get("r")
    assert stored is not None
    assert stored.body == "completed"


def test_latest_response_of_a_named_conversation_is_found(mine: Transaction, clock: SettableClock) -> None:
    for response_id, conversation in (("b", "trip"), ("a", "trip"), ("c", "other"), ("d", "")):
        mine.responses.put(StoredResponse(id=response_id, session_id=ONE, body="", conversation=conversation))
        clock.advance(timedelta(seconds=1))
    newest = mine.responses.latest_response("trip")
    assert newest is not None
    assert newest.id == "a"
    assert mine.responses.latest_response("nowhere") is None
    assert mine.responses.latest_response("") is None


def test_response_can_be_deleted(mine: Transaction) -> None:
    mine.responses.put(StoredResponse(id="r", session_id=ONE, body=""))
    assert mine.responses.delete("r")
    assert not mine.responses.delete("r")
    assert mine.responses.get("r") is None


def test_first_request_reserves_its_idempotency_key(mine: Transaction, theirs: Transaction) -> None:
    assert mine.responses.reserve_request("key", "post a", DAY) is None
    assert theirs.responses.reserve_request("key", "post b", DAY) == IdempotentAnswer("post a", None)
    mine.responses.store_answer("key", "post a", "answer", DAY)
    assert theirs.responses.reserve_request("key", "post a", DAY) == IdempotentAnswer("post a", "answer")
    assert mine.responses.reserve_request("other", "post a", DAY) is None


def test_idempotency_key_is_free_again_after_it_expires(mine: Transaction, clock: SettableClock) -> None:
    mine.responses.reserve_request("key", "post a", DAY)
    mine.responses.store_answer("key", "post a", "answer", DAY)
    clock.advance(DAY)
    assert mine.responses.reserve_request("key", "post b", DAY) is None
    assert mine.responses.reserve_request("key", "post b", DAY) == IdempotentAnswer("post b", None)


def test_reservation_of_an_idempotency_key_can_be_extended(
    mine: Transaction, theirs: Transaction, clock: SettableClock
) -> None:
    mine.responses.reserve_request("key", "post a", DAY)
    clock.advance(DAY / 2)
    assert mine.responses.reserve_request("key", "post a", DAY, instead_of="post a") is None
    clock.advance(DAY / 2)
    assert theirs.responses.reserve_request("key", "post b", DAY) == IdempotentAnswer("post a", None)
    mine.responses.store_answer("key", "post a", "answer", DAY)
    clock.advance(DAY / 2)
    assert theirs.responses.reserve_request("key", "post b", DAY) == IdempotentAnswer("post a", "answer")


def test_reservation_of_a_dead_process_is_replaced_once(mine: Transaction, theirs: Transaction) -> None:
    mine.responses.reserve_request("key", "post a, by one who died", DAY)
    dead = "post a, by one who died"
    assert theirs.responses.reserve_request("key", "post a, by us", DAY, instead_of=dead) is None
    again = mine.responses.reserve_request("key", "post a, by others", DAY, instead_of=dead)
    assert again == IdempotentAnswer("post a, by us", None)
    mine.responses.store_answer("key", dead, "too late", DAY)
    theirs.responses.store_answer("key", "post a, by us", "answer", DAY)
    answered = mine.responses.reserve_request("key", "post a", DAY, instead_of="post a, by us")
    assert answered == IdempotentAnswer("post a, by us", "answer")


def test_a_run_is_recorded(mine: Transaction) -> None:
    run = mine.runs.create(ApiRun(id="run", session_id=ONE, request="{}"))
    assert run == ApiRun(id="run", session_id=ONE, request="{}", state="queued", created_at=NOON, updated_at=NOON)
    assert mine.runs.get("run") == run
    assert mine.runs.get("other") is None


def test_run_changes_state_until_it_has_ended(mine: Transaction, clock: SettableClock) -> None:
    mine.runs.create(ApiRun(id="run", session_id=ONE, request="{}"))
    clock.advance(DAY)
    moves: list[ApiRunState] = ["running", "waiting", "running", "failed"]
    assert [mine.runs.move("run", state, "no answer" if state == "failed" else "") for state in moves] == [True] * 4
    assert not mine.runs.move("run", "completed")
    assert not mine.runs.move("other", "running")
    run = mine.runs.get("run")
    assert run is not None
    assert (run.state, run.error, run.created_at, run.updated_at) == ("failed", "no answer", NOON, NOON + DAY)


def test_runs_that_have_not_ended_are_listed_oldest_first(mine: Transaction, clock: SettableClock) -> None:
    states: list[ApiRunState] = ["completed", "waiting", "stopped", "queued", "failed", "running"]
    for number, state in enumerate(states):
        mine.runs.create(ApiRun(id=str(9 - number), session_id=ONE, request=""))
        mine.runs.move(str(9 - number), state)
        clock.advance(timedelta(seconds=1))
    assert [run.state for run in mine.runs.open()] == ["waiting", "queued", "running"]


def test_conversation_name_is_reassigned_only_from_the_expected_session(mine: Transaction, theirs: Transaction) -> None:
    one, two, three = SessionId("one"), SessionId("two"), SessionId("three")
    assert mine.responses.conversation_session("trip") is None
    assert mine.responses.name_conversation("trip", one, former=None)
    assert not theirs.responses.name_conversation("trip", two, former=None)
    assert theirs.responses.name_conversation("trip", two, former=one)
    assert not mine.responses.name_conversation("trip", three, former=one)
    assert mine.responses.conversation_session("trip") == two
