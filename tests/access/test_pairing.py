"""Codes for strangers."""

import re
from datetime import timedelta
from functools import partial

import pytest
from msgspec import structs

from talaria.access.browsers import digest_token, is_waiting, read_browsers
from talaria.access.pairing import (
    PAIRING_ADDRESS,
    RULES,
    approve_code,
    approve_request,
    offer_browser_code,
    offer_code,
    refuse_request,
    render_pairing_text,
)
from talaria.contracts.store import Database, Transaction
from talaria.contracts.stores.access import PairedPerson, PairingRules
from talaria.core.addresses import Address
from talaria.core.errors import NotFound, Refused
from talaria.runtime.outbox import read_content
from talaria.testing.clock import NOON, SettableClock

ANN = PairedPerson("telegram", "1", "Ann")


def offered(database: Database, person: PairedPerson = ANN) -> str:
    code = database.write(lambda tx: offer_code(tx, person))
    assert code is not None
    return code


def approved(database: Database, code: str, platform: str = "telegram") -> PairedPerson | None:
    return database.write(lambda tx: approve_code(tx, platform, code))


def test_a_code_is_easy_to_read_out_and_lets_its_holder_in(database: Database, other: Database) -> None:
    code = offered(database)
    assert re.fullmatch(r"[A-HJ-NP-Z2-9]{8}", code)
    assert approved(other, f" {code[:4].lower()}-{code[4:]} ") == structs.replace(ANN, since=NOON)
    assert database.read(lambda tx: tx.pairing.is_paired("telegram", "1"))
    assert approved(database, code) is None


def test_a_code_is_good_on_its_own_network_and_for_an_hour(database: Database, clock: SettableClock) -> None:
    code = offered(database)
    assert approved(database, code, "discord") is None
    clock.advance(timedelta(hours=1))
    assert approved(database, code) is None
    assert offered(database) != code


def test_nobody_gets_a_second_code_while_the_first_is_good(database: Database, clock: SettableClock) -> None:
    offered(database)
    assert database.write(lambda tx: offer_code(tx, ANN)) is None
    clock.advance(RULES.code_life)
    assert offered(database)


def test_a_crowd_of_strangers_does_not_fill_the_store(mine: Transaction) -> None:
    rules = PairingRules(per_minute=1000)
    for number in range(3 * rules.max_waiting):
        assert mine.pairing.offer(PairedPerson("telegram", f"{number:03}"), str(number), rules)
    assert len(mine.pairing.waiting()) == rules.max_waiting


def test_a_friend_gets_a_code_while_strangers_crowd(mine: Transaction) -> None:
    rules = PairingRules(per_minute=1000)
    for number in range(rules.max_waiting):
        mine.pairing.offer(PairedPerson("telegram", f"{number:03}"), str(number), rules)
    assert offer_code(mine, PairedPerson("telegram", "zoe"), rules) is not None
    assert "zoe" in {one.user_id for one in mine.pairing.waiting()}


def test_only_so_many_codes_are_made_in_a_minute(mine: Transaction) -> None:
    rules = PairingRules(per_minute=3)
    codes = [offer_code(mine, PairedPerson("telegram", str(number)), rules) for number in range(5)]
    assert [code is not None for code in codes] == [True, True, True, False, False]
    assert offer_code(mine, PairedPerson("discord", "other"), rules) is not None


def test_an_approved_sender_is_notified_in_their_chat(database: Database) -> None:
    place = Address("telegram", "chat-of-ann")
    code = database.write(lambda tx: offer_code(tx, ANN, place=place))
    assert code is not None
    assert approved(database, "ABCDEFGH") is None
    assert database.read(lambda tx: tx.outbox.find()) == []
    assert approved(database, code) is not None
    (item,) = database.read(lambda tx: tx.outbox.find())
    assert (item.address, read_content(item.payload).text) == (
        place,
        "You've been approved. I'll answer you here from now on.",
    )
    assert database.read(PAIRING_ADDRESS.keys) == []


def test_strangers_leave_nothing_behind_when_their_time_is_over(database: Database, clock: SettableClock) -> None:
    for number in range(3):
        database.write(
            partial(offer_code, person=PairedPerson("telegram", str(number)), place=Address("telegram", "1"))
        )
        clock.advance(RULES.code_life)
    assert len(database.read(PAIRING_ADDRESS.keys)) == 1


def test_the_code_itself_is_kept_nowhere(database: Database) -> None:
    code = offered(database)
    kept = database.read(lambda tx: [str(row) for name in tx.archive.tables() for row in tx.archive.rows(name)])
    assert any("pairing_salt" in row for row in kept)
    assert not any(code in row for row in kept)


@pytest.mark.parametrize("text", ["", "ABC", "ABCDEFGHJ", "ABCDEFG0", "ABCDEFGI", "ÄBCDEFGH"])
def test_what_cannot_be_a_code_is_refused_and_is_no_failure(database: Database, text: str) -> None:
    code = offered(database)
    for _ in range(RULES.failures + 1):
        with pytest.raises(Refused, match="isn't a valid code"):
            approved(database, text)
    assert approved(database, code) is not None


def test_guessing_locks_the_network(database: Database, clock: SettableClock) -> None:
    code = offered(database)
    assert [approved(database, "AAAAAAAA") for _ in range(RULES.failures)] == [None] * RULES.failures
    with pytest.raises(Refused, match="Too many wrong codes"):
        approved(database, code)
    clock.advance(RULES.lockout)
    assert approved(database, offered(database)) is not None


def test_a_stranger_learns_how_to_get_access() -> None:
    words = render_pairing_text("telegram", "ABCD2345")
    assert "`talaria pairing approve telegram ABCD2345`" in words
    assert "60 minutes" in words


def test_a_request_is_approved_without_its_code(database: Database) -> None:
    place = Address("telegram", "1")
    database.write(lambda tx: offer_code(tx, ANN, place=place))
    assert database.write(lambda tx: approve_request(tx, "telegram", "1")) == structs.replace(ANN, since=NOON)
    assert database.read(lambda tx: tx.pairing.is_paired("telegram", "1"))
    with pytest.raises(NotFound, match="expired"):
        database.write(lambda tx: approve_request(tx, "telegram", "1"))


def test_a_refused_code_is_worth_nothing(database: Database) -> None:
    code = offered(database)
    database.write(lambda tx: refuse_request(tx, "telegram", "1"))
    assert approved(database, code) is None
    assert database.read(lambda tx: PAIRING_ADDRESS.keys(tx, "")) == []
    with pytest.raises(NotFound):
        database.write(lambda tx: refuse_request(tx, "telegram", "1"))


def test_an_approved_browser_is_signed_in_and_no_person(database: Database) -> None:
    offer = database.write(lambda tx: offer_browser_code(tx, "Firefox on Linux"))
    assert offer is not None
    code, token = offer
    digest = digest_token(token)
    assert database.read(lambda tx: is_waiting(tx, digest))
    assert database.read(read_browsers) == {}
    waiting = database.read(lambda tx: tx.pairing.waiting())
    with pytest.raises(Refused, match="code"):
        database.write(lambda tx: approve_request(tx, "web", waiting[0].user_id))
    database.write(lambda tx: approve_code(tx, "web", code, person="alice"))
    browser = database.read(read_browsers)[digest]
    assert (browser.label, browser.person, browser.id) == ("Firefox on Linux", "alice", waiting[0].user_id)
    assert database.read(lambda tx: (tx.pairing.people(), tx.pairing.waiting(), is_waiting(tx, digest))) == (
        [],
        [],
        False,
    )


def test_a_refused_browser_stays_out(database: Database) -> None:
    offer = database.write(lambda tx: offer_browser_code(tx, "Firefox"))
    assert offer is not None
    (waiting,) = database.read(lambda tx: tx.pairing.waiting())
    database.write(lambda tx: refuse_request(tx, "web", waiting.user_id))
    assert not database.read(lambda tx: is_waiting(tx, digest_token(offer[1])))
    assert approved(database, offer[0], "web") is None
    assert database.read(read_browsers) == {}


def test_many_browsers_that_ask_at_once_get_no_code(database: Database) -> None:
    rules = PairingRules(per_minute=2)
    offers = [database.write(lambda tx: offer_browser_code(tx, "Bot", rules)) for _ in range(3)]
    assert [offer is not None for offer in offers] == [True, True, False]
