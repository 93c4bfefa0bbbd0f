"""Handoffs: the six calls of the contract, withdrawal and lapsed claims."""

from datetime import timedelta
from typing import Literal

import pytest

from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import (
    CLAIM_LIFE,
    EXPIRED,
    HANDOFF_LIFE,
    REQUEST_LIFE,
    HandoffState,
    HandoffThread,
    NewSession,
    PendingHandoff,
)
from talaria.core.addresses import Address
from talaria.core.ids import SessionId
from talaria.testing.clock import SettableClock

NOWHERE = SessionId("nowhere")
Status = Literal["pending", "running", "completed", "failed"]


@pytest.fixture
def session(mine: Transaction) -> SessionId:
    return mine.sessions.create(NewSession(source="cli", title="Trip")).id


def bring_to(tx: Transaction, session: SessionId, status: Status) -> None:
    """Bring a fresh session's handoff to a state."""
    tx.handoffs.request_handoff(session, "telegram")
    if status != "pending":
        tx.handoffs.claim_handoff(session)
    if status == "completed":
        tx.handoffs.complete_handoff(session)
    if status == "failed":
        tx.handoffs.fail_handoff(session, "no home channel")


def test_new_session_has_no_handoff_state(mine: Transaction, session: SessionId) -> None:
    assert mine.handoffs.get_handoff_state(session) == {"state": None, "platform": None, "error": None}


def test_requested_handoff_is_pending(mine: Transaction, session: SessionId) -> None:
    assert mine.handoffs.request_handoff(session, "telegram")
    assert mine.handoffs.get_handoff_state(session) == {"state": "pending", "platform": "telegram", "error": None}


@pytest.mark.parametrize("status", ["pending", "running"])
def test_second_request_is_refused_while_a_handoff_is_pending_or_running(
    mine: Transaction, session: SessionId, status: Status
) -> None:
    bring_to(mine, session, status)
    assert not mine.handoffs.request_handoff(session, "discord")
    assert mine.handoffs.get_handoff_state(session) == {"state": status, "platform": "telegram", "error": None}


@pytest.mark.parametrize("status", ["completed", "failed"])
def test_new_request_to_another_platform_is_accepted_after_a_handoff_ended(
    mine: Transaction, session: SessionId, status: Status
) -> None:
    bring_to(mine, session, status)
    assert mine.handoffs.request_handoff(session, "discord")
    assert mine.handoffs.get_handoff_state(session) == {"state": "pending", "platform": "discord", "error": None}


def test_handoff_calls_for_an_unknown_session_are_refused(mine: Transaction) -> None:
    assert not mine.handoffs.request_handoff(NOWHERE, "telegram")
    assert mine.handoffs.get_handoff_state(NOWHERE) is None
    assert not mine.handoffs.claim_handoff(NOWHERE)
    assert not mine.handoffs.complete_handoff(NOWHERE)
    assert not mine.handoffs.fail_handoff(NOWHERE, "")
    assert not mine.handoffs.withdraw_handoff(NOWHERE, "")


def test_pending_handoffs_are_listed_oldest_request_first(mine: Transaction, clock: SettableClock) -> None:
    titles: list[Status | Literal["first", "second"]] = ["second", "first", "running", "completed", "failed"]
    ids = {title: mine.sessions.create(NewSession(source="cli", title=title)).id for title in titles}
    mine.sessions.create(NewSession(source="cli", title="never asked"))
    statuses: list[Status] = ["running", "completed", "failed"]
    for status in statuses:
        bring_to(mine, ids[status], status)
    mine.handoffs.request_handoff(ids["first"], "discord")
    clock.advance(timedelta(seconds=1))
    mine.handoffs.request_handoff(ids["second"], "telegram")
    assert mine.handoffs.list_pending_handoffs() == [
        PendingHandoff(ids["first"], "first", "discord"),
        PendingHandoff(ids["second"], "second", "telegram"),
    ]


def test_pending_handoff_is_claimed_once(mine: Transaction, theirs: Transaction, session: SessionId) -> None:
    mine.handoffs.request_handoff(session, "telegram")
    assert theirs.handoffs.claim_handoff(session)
    assert not mine.handoffs.claim_handoff(session)
    assert not theirs.handoffs.claim_handoff(session)
    assert mine.handoffs.get_handoff_state(session) == {"state": "running", "platform": "telegram", "error": None}
    assert mine.handoffs.list_pending_handoffs() == []


@pytest.mark.parametrize("status", ["completed", "failed"])
def test_ended_handoff_cannot_be_claimed(mine: Transaction, session: SessionId, status: Status) -> None:
    bring_to(mine, session, status)
    assert not mine.handoffs.claim_handoff(session)


def test_session_without_request_has_no_handoff_to_claim_end_or_withdraw(mine: Transaction, session: SessionId) -> None:
    assert not mine.handoffs.claim_handoff(session)
    assert not mine.handoffs.complete_handoff(session)
    assert not mine.handoffs.fail_handoff(session, "no")
    assert not mine.handoffs.withdraw_handoff(session, "no")
    assert mine.handoffs.get_handoff_state(session) == HandoffState(state=None, platform=None, error=None)


def test_running_handoff_is_completed_only_by_its_claimer(
    mine: Transaction, theirs: Transaction, session: SessionId
) -> None:
    bring_to(mine, session, "running")
    assert not theirs.handoffs.complete_handoff(session)
    assert mine.handoffs.complete_handoff(session)
    assert not mine.handoffs.complete_handoff(session)
    assert mine.handoffs.get_handoff_state(session) == {"state": "completed", "platform": "telegram", "error": None}


def test_pending_handoff_cannot_be_completed(mine: Transaction, session: SessionId) -> None:
    bring_to(mine, session, "pending")
    assert not mine.handoffs.complete_handoff(session)


def test_running_handoff_is_failed_only_by_its_claimer(
    mine: Transaction, theirs: Transaction, session: SessionId
) -> None:
    bring_to(mine, session, "running")
    assert not theirs.handoffs.fail_handoff(session, "mine")
    assert mine.handoffs.fail_handoff(session, "no home channel")
    assert mine.handoffs.get_handoff_state(session) == {
        "state": "failed",
        "platform": "telegram",
        "error": "no home channel",
    }


def test_pending_handoff_can_be_failed_by_any_worker(
    mine: Transaction, theirs: Transaction, session: SessionId
) -> None:
    bring_to(mine, session, "pending")
    assert theirs.handoffs.fail_handoff(session, "unknown platform")
    assert not mine.handoffs.claim_handoff(session)


@pytest.mark.parametrize("status", ["completed", "failed"])
def test_ended_handoff_does_not_change_state(mine: Transaction, session: SessionId, status: Status) -> None:
    bring_to(mine, session, status)
    before = mine.handoffs.get_handoff_state(session)
    assert not mine.handoffs.complete_handoff(session)
    assert not mine.handoffs.fail_handoff(session, "late")
    assert not mine.handoffs.withdraw_handoff(session, "late")
    assert mine.handoffs.get_handoff_state(session) == before


@pytest.mark.parametrize("by", ["fail_handoff", "withdraw_handoff"])
def test_failure_reason_is_cut_at_500_characters(mine: Transaction, session: SessionId, by: str) -> None:
    bring_to(mine, session, "pending")
    reason = "é🎉" * 400
    assert getattr(mine.handoffs, by)(session, reason)
    state = mine.handoffs.get_handoff_state(session)
    assert state is not None
    assert state["error"] == reason[:500]


@pytest.mark.parametrize("status", ["pending", "running"])
def test_requester_can_withdraw_a_pending_or_running_handoff(
    mine: Transaction, theirs: Transaction, session: SessionId, status: Status
) -> None:
    bring_to(theirs, session, status)
    assert mine.handoffs.withdraw_handoff(session, "timed out")
    assert not mine.handoffs.withdraw_handoff(session, "again")
    assert mine.handoffs.get_handoff_state(session) == {
        "state": "failed",
        "platform": "telegram",
        "error": "timed out",
    }


def test_late_worker_cannot_change_a_withdrawn_handoff(
    mine: Transaction, theirs: Transaction, session: SessionId
) -> None:
    bring_to(theirs, session, "running")
    mine.handoffs.withdraw_handoff(session, "timed out")
    assert not theirs.handoffs.complete_handoff(session)
    assert not theirs.handoffs.fail_handoff(session, "late")
    mine.handoffs.request_handoff(session, "discord")
    assert not theirs.handoffs.complete_handoff(session)
    assert mine.handoffs.get_handoff_state(session) == {"state": "pending", "platform": "discord", "error": None}


def test_lapsed_claim_is_taken_over_by_one_worker(
    mine: Transaction, theirs: Transaction, session: SessionId, clock: SettableClock
) -> None:
    bring_to(mine, session, "running")
    assert theirs.handoffs.list_lapsed_handoffs() == []
    clock.advance(CLAIM_LIFE)
    assert theirs.handoffs.list_lapsed_handoffs() == [PendingHandoff(session, "Trip", "telegram")]
    assert theirs.handoffs.claim_handoff(session)
    assert not mine.handoffs.claim_handoff(session)
    assert theirs.handoffs.list_lapsed_handoffs() == []
    assert not mine.handoffs.complete_handoff(session)
    assert not mine.handoffs.fail_handoff(session, "late")
    assert theirs.handoffs.complete_handoff(session)


def test_claim_lapses_after_its_own_duration(
    mine: Transaction, theirs: Transaction, session: SessionId, clock: SettableClock
) -> None:
    mine.handoffs.request_handoff(session, "telegram")
    mine.handoffs.claim_handoff(session, timedelta(seconds=5))
    clock.advance(timedelta(seconds=4))
    assert not theirs.handoffs.claim_handoff(session)
    clock.advance(timedelta(seconds=1))
    assert theirs.handoffs.claim_handoff(session)


def test_lapsed_handoffs_are_listed_oldest_request_first(mine: Transaction, clock: SettableClock) -> None:
    ids = [mine.sessions.create(NewSession(source="cli")).id for _ in range(3)]
    for session in reversed(ids):
        mine.handoffs.request_handoff(session, "telegram")
        clock.advance(timedelta(seconds=1))
    for session in ids:
        mine.handoffs.claim_handoff(session)
    clock.advance(CLAIM_LIFE)
    assert [one.session_id for one in mine.handoffs.list_lapsed_handoffs()] == list(reversed(ids))


def test_handoffs_of_different_sessions_are_independent(mine: Transaction, theirs: Transaction) -> None:
    one, two = (mine.sessions.create(NewSession(source="cli")).id for _ in range(2))
    bring_to(mine, one, "running")
    bring_to(theirs, two, "running")
    assert theirs.handoffs.fail_handoff(two, "no")
    assert mine.handoffs.complete_handoff(one)
    states = [mine.handoffs.get_handoff_state(session) for session in (one, two)]
    assert [state and state["state"] for state in states] == ["completed", "failed"]


def test_pending_request_expires(
    mine: Transaction, theirs: Transaction, session: SessionId, clock: SettableClock
) -> None:
    bring_to(mine, session, "pending")
    clock.advance(REQUEST_LIFE)
    assert theirs.handoffs.list_pending_handoffs() == []
    assert not theirs.handoffs.claim_handoff(session)
    assert not theirs.handoffs.complete_handoff(session)
    assert not mine.handoffs.withdraw_handoff(session, "late")
    assert mine.handoffs.get_handoff_state(session) == {"state": "failed", "platform": "telegram", "error": EXPIRED}
    assert mine.handoffs.request_handoff(session, "discord")
    assert theirs.handoffs.claim_handoff(session)


def test_claimed_handoff_expires_if_it_is_not_finished(
    mine: Transaction, theirs: Transaction, session: SessionId, clock: SettableClock
) -> None:
    bring_to(mine, session, "running")
    clock.advance(HANDOFF_LIFE)
    assert theirs.handoffs.list_lapsed_handoffs() == []
    assert not theirs.handoffs.claim_handoff(session)
    assert not mine.handoffs.complete_handoff(session)
    assert mine.handoffs.get_handoff_state(session) == {"state": "failed", "platform": "telegram", "error": EXPIRED}


def test_claim_in_time_outlives_the_request(
    mine: Transaction, theirs: Transaction, session: SessionId, clock: SettableClock
) -> None:
    bring_to(mine, session, "pending")
    clock.advance(REQUEST_LIFE - timedelta(seconds=1))
    assert theirs.handoffs.claim_handoff(session)
    clock.advance(CLAIM_LIFE - timedelta(seconds=1))
    assert theirs.handoffs.complete_handoff(session)


def test_target_and_immediacy_belong_to_one_request(mine: Transaction, session: SessionId) -> None:
    chat = Address("telegram", "77", "group")
    assert mine.handoffs.request_handoff(session, "telegram", target=chat, immediate=True)
    requested = PendingHandoff(session, "Trip", "telegram", chat, immediate=True)
    assert mine.handoffs.list_pending_handoffs() == [requested]
    assert mine.handoffs.find_active_handoff(session) == requested
    mine.handoffs.withdraw_handoff(session, "changed my mind")
    assert mine.handoffs.find_active_handoff(session) is None
    assert mine.handoffs.request_handoff(session, "telegram")
    assert mine.handoffs.find_active_handoff(session) == PendingHandoff(session, "Trip", "telegram")


def test_thread_is_used_again_after_a_failure_on_the_same_platform(mine: Transaction, session: SessionId) -> None:
    thread = HandoffThread("77", "5")
    bring_to(mine, session, "running")
    mine.handoffs.store_thread(session, thread)
    mine.handoffs.fail_handoff(session, "timed out")
    mine.handoffs.request_handoff(session, "telegram")
    assert mine.handoffs.find_active_handoff(session) == PendingHandoff(session, "Trip", "telegram", thread=thread)
    mine.handoffs.withdraw_handoff(session, "elsewhere")
    mine.handoffs.request_handoff(session, "discord")
    assert mine.handoffs.find_active_handoff(session) == PendingHandoff(session, "Trip", "discord")


def test_thread_is_cleared_when_the_handoff_is_completed(mine: Transaction, session: SessionId) -> None:
    bring_to(mine, session, "running")
    mine.handoffs.store_thread(session, HandoffThread("77", ""))
    mine.handoffs.complete_handoff(session)
    mine.handoffs.request_handoff(session, "telegram")
    assert mine.handoffs.find_active_handoff(session) == PendingHandoff(session, "Trip", "telegram")


@pytest.mark.parametrize("status", ["pending", "running", "completed", "failed"])
def test_session_row_shows_state_platform_and_error(mine: Transaction, session: SessionId, status: Status) -> None:
    bring_to(mine, session, status)
    columns = mine.archive.columns("sessions")
    (row,) = mine.archive.rows("sessions")
    shown = dict(zip(columns, row, strict=True))
    error = "no home channel" if status == "failed" else None
    assert (shown["handoff_state"], shown["handoff_platform"], shown["handoff_error"]) == (status, "telegram", error)


def test_deleting_a_session_deletes_its_handoff(mine: Transaction, session: SessionId) -> None:
    bring_to(mine, session, "pending")
    mine.sessions.delete(session)
    assert list(mine.archive.rows("handoffs")) == []
