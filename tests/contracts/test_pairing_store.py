"""Approved people, and pending pairing codes."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from talaria.contracts.store import Transaction
from talaria.contracts.stores.access import PairedPerson, PairingRules
from talaria.core.errors import Refused
from talaria.testing.clock import NOON, SettableClock

RULES = PairingRules(code_life=timedelta(hours=1), failures=3, lockout=timedelta(hours=2))
ANA = PairedPerson("telegram", "1", "Ana")
BEN = PairedPerson("telegram", "2", "Ben")


def test_pairing_code_admits_its_sender_once(mine: Transaction, theirs: Transaction) -> None:
    assert mine.pairing.offer(ANA, "hash", RULES)
    assert mine.pairing.waiting() == [replace(ANA, since=NOON)]
    assert not mine.pairing.is_paired("telegram", "1")
    assert theirs.pairing.approve("telegram", "hash", RULES) == replace(ANA, since=NOON)
    assert mine.pairing.is_paired("telegram", "1")
    assert mine.pairing.people() == [replace(ANA, since=NOON)]
    assert mine.pairing.waiting() == []
    assert mine.pairing.approve("telegram", "hash", RULES) is None


def test_pairing_request_is_admitted_or_refused_without_its_code(mine: Transaction, theirs: Transaction) -> None:
    mine.pairing.offer(ANA, "hash", RULES)
    mine.pairing.offer(BEN, "other", RULES)
    assert theirs.pairing.admit("discord", "1") is None
    assert theirs.pairing.admit("telegram", "1") == replace(ANA, since=NOON)
    assert theirs.pairing.refuse("telegram", "2")
    assert not theirs.pairing.refuse("telegram", "2")
    assert mine.pairing.waiting() == []
    assert mine.pairing.people() == [replace(ANA, since=NOON)]
    assert mine.pairing.approve("telegram", "other", RULES) is None


def test_expired_pairing_request_is_not_admitted(mine: Transaction, clock: SettableClock) -> None:
    mine.pairing.offer(ANA, "hash", RULES)
    clock.advance(RULES.code_life)
    assert mine.pairing.admit("telegram", "1") is None
    assert mine.pairing.people() == []


def test_pairing_code_is_valid_only_on_its_platform(mine: Transaction) -> None:
    mine.pairing.offer(ANA, "hash", RULES)
    assert mine.pairing.approve("discord", "hash", RULES) is None
    assert mine.pairing.approve("telegram", "hash", RULES) is not None


def test_second_code_is_refused_while_the_first_is_valid(mine: Transaction, clock: SettableClock) -> None:
    assert mine.pairing.offer(ANA, "first", RULES)
    assert not mine.pairing.offer(ANA, "second", RULES)
    clock.advance(RULES.code_life)
    assert mine.pairing.offer(replace(ANA, name="Anna"), "third", RULES)
    assert [mine.pairing.approve("telegram", code, RULES) for code in ("first", "second")] == [None, None]
    approved = mine.pairing.approve("telegram", "third", RULES)
    assert approved is not None
    assert approved.name == "Anna"


def test_expired_code_is_refused(mine: Transaction, clock: SettableClock) -> None:
    mine.pairing.offer(ANA, "hash", RULES)
    clock.advance(RULES.code_life)
    assert mine.pairing.waiting() == []
    assert mine.pairing.approve("telegram", "hash", RULES) is None
    assert mine.pairing.people() == []


def test_too_many_wrong_codes_lock_the_platform_temporarily(mine: Transaction, clock: SettableClock) -> None:
    mine.pairing.offer(ANA, "hash", replace(RULES, code_life=timedelta(days=1)))
    assert [mine.pairing.approve("telegram", "wrong", RULES) for _ in range(3)] == [None] * 3
    with pytest.raises(Refused, match="14:00"):
        mine.pairing.approve("telegram", "hash", RULES)
    assert mine.pairing.approve("discord", "wrong", RULES) is None
    clock.advance(RULES.lockout)
    assert mine.pairing.approve("telegram", "hash", RULES) is not None


def test_expired_codes_count_as_wrong_codes(mine: Transaction, clock: SettableClock) -> None:
    mine.pairing.offer(ANA, "hash", RULES)
    clock.advance(RULES.code_life)
    for _ in range(3):
        mine.pairing.approve("telegram", "hash", RULES)
    with pytest.raises(Refused):
        mine.pairing.approve("telegram", "hash", RULES)


def test_right_code_or_lockout_resets_the_count_of_wrong_codes(mine: Transaction, clock: SettableClock) -> None:
    mine.pairing.offer(ANA, "hash", RULES)
    for code in ("wrong", "wrong", "hash", "wrong", "wrong"):
        mine.pairing.approve("telegram", code, RULES)
    assert mine.pairing.approve("telegram", "wrong", RULES) is None
    clock.advance(RULES.lockout)
    assert [mine.pairing.approve("telegram", "wrong", RULES) for _ in range(3)] == [None] * 3
    with pytest.raises(Refused):
        mine.pairing.approve("telegram", "wrong", RULES)


def test_approved_senders_are_listed_and_can_be_revoked(mine: Transaction, clock: SettableClock) -> None:
    for person in (BEN, ANA, PairedPerson("discord", "1")):
        mine.pairing.offer(person, f"{person.platform} {person.user_id}", RULES)
        mine.pairing.approve(person.platform, f"{person.platform} {person.user_id}", RULES)
        clock.advance(timedelta(minutes=1))
    assert [person.user_id for person in mine.pairing.people("telegram")] == ["2", "1"]
    assert len(mine.pairing.people()) == 3
    assert mine.pairing.revoke("telegram", "2")
    assert not mine.pairing.revoke("telegram", "2")
    assert not mine.pairing.is_paired("telegram", "2")
    assert mine.pairing.is_paired("discord", "1")


def test_approving_a_sender_again_preserves_the_first_date(mine: Transaction, clock: SettableClock) -> None:
    for code in ("first", "second"):
        mine.pairing.offer(ANA, code, RULES)
        approved = mine.pairing.approve("telegram", code, RULES)
        clock.advance(timedelta(days=1))
    assert approved == replace(ANA, since=NOON)
    assert mine.pairing.people() == [approved]
