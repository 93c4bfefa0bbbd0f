"""Pairing: one-time codes for unknown senders and browsers."""

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


def create_code(database: Database, person: PairedPerson = ANN) -> str:
    code = database.write(lambda tx: offer_code(tx, person))
    assert code is not None
    return code


def approve(database: Database, code: str, platform: str = "telegram") -> PairedPerson | None:
    return database.write(lambda tx: approve_code(tx, platform, code))


def test_code_is_readable_and_pairs_its_sender_once(database: Database, other: Database) -> None:
    code = create_code(database)
    assert re.fullmatch(r"[A-HJ-NP-Z2-9]{8}", code)
    assert approve(other, f" {code[:4].lower()}-{code[4:]} ") == structs.replace(ANN, since=NOON)
    assert database.read(lambda tx: tx.pairing.is_paired("telegram", "1"))
    assert approve(database, code) is None


def test_code_is_valid_on_its_own_network_for_an_hour(database: Database, clock: SettableClock) -> None:
    code = create_code(database)
    assert approve(database, code, "discord") is None
    clock.advance(timedelta(hours=1))
    assert approve(database, code) is None
    assert create_code(database) != code


def test_sender_gets_no_second_code_while_the_first_is_valid(database: Database, clock: SettableClock) -> None:
    create_code(database)
    assert database.write(lambda tx: offer_code(tx, ANN)) is None
    clock.advance(RULES.code_life)
    assert create_code(database)


def test_number_of_pending_pairing_requests_is_limited(mine: Transaction) -> None:
    rules = PairingRules(per_minute=1000)
    for number in range(3 * rules.max_waiting):
        assert mine.pairing.offer(PairedPerson("telegram", f"{number:03}"), str(number), rules)
    assert len(mine.pairing.waiting()) == rules.max_waiting


def test_new_sender_gets_a_code_even_if_the_pending_list_is_full(mine: Transaction) -> None:
    rules = PairingRules(per_minute=1000)
    for number in range(rules.max_waiting):
        mine.pairing.offer(PairedPerson("telegram", f"{number:03}"), str(number), rules)
    assert offer_code(mine, PairedPerson("telegram", "zoe"), rules) is not None
    assert "zoe" in {one.user_id for one in mine.pairing.waiting()}


def test_codes_per_minute_are_limited_per_network(mine: Transaction) -> None:
    rules = PairingRules(per_minute=3)
    codes = [offer_code(mine, PairedPerson("telegram", str(number)), rules) for number in range(5)]
    assert [code is not None for code in codes] == [True, True, True, False, False]
    assert offer_code(mine, PairedPerson("discord", "other"), rules) is not None


def test_an_approved_sender_is_notified_in_their_chat(database: Database) -> None:
    chat = Address("telegram", "chat-of-ann")
    code = database.write(lambda tx: offer_code(tx, ANN, address=chat))
    assert code is not None
    assert approve(database, "ABCDEFGH") is None
    assert database.read(lambda tx: tx.outbox.find()) == []
    assert approve(database, code) is not None
    (item,) = database.read(lambda tx: tx.outbox.find())
    assert (item.address, read_content(item.payload).text) == (
        chat,
        "You've been approved. I'll answer you here from now on.",
    )
    assert database.read(PAIRING_ADDRESS.keys) == []


def test_addresses_of_expired_requests_are_deleted(database: Database, clock: SettableClock) -> None:
    for number in range(3):
        database.write(
            partial(offer_code, person=PairedPerson("telegram", str(number)), address=Address("telegram", "1"))
        )
        clock.advance(RULES.code_life)
    assert len(database.read(PAIRING_ADDRESS.keys)) == 1


def test_plain_code_is_not_stored(database: Database) -> None:
    code = create_code(database)
    rows = database.read(lambda tx: [str(row) for name in tx.archive.tables() for row in tx.archive.rows(name)])
    assert any("pairing_salt" in row for row in rows)
    assert not any(code in row for row in rows)


@pytest.mark.parametrize("text", ["", "ABC", "ABCDEFGHJ", "ABCDEFG0", "ABCDEFGI", "ÄBCDEFGH"])
def test_malformed_code_is_refused_without_counting_as_a_failure(database: Database, text: str) -> None:
    code = create_code(database)
    for _ in range(RULES.failures + 1):
        with pytest.raises(Refused, match="isn't a valid code"):
            approve(database, text)
    assert approve(database, code) is not None


def test_too_many_wrong_codes_lock_the_network(database: Database, clock: SettableClock) -> None:
    code = create_code(database)
    assert [approve(database, "AAAAAAAA") for _ in range(RULES.failures)] == [None] * RULES.failures
    with pytest.raises(Refused, match="Too many wrong codes"):
        approve(database, code)
    clock.advance(RULES.lockout)
    assert approve(database, create_code(database)) is not None


def test_pairing_text_has_the_approval_command_and_expiry() -> None:
    text = render_pairing_text("telegram", "ABCD2345")
    assert "`talaria pairing approve telegram ABCD2345`" in text
    assert "60 minutes" in text


def test_pairing_request_is_approved_without_its_code(database: Database) -> None:
    chat = Address("telegram", "1")
    database.write(lambda tx: offer_code(tx, ANN, address=chat))
    assert database.write(lambda tx: approve_request(tx, "telegram", "1")) == structs.replace(ANN, since=NOON)
    assert database.read(lambda tx: tx.pairing.is_paired("telegram", "1"))
    with pytest.raises(NotFound, match="expired"):
        database.write(lambda tx: approve_request(tx, "telegram", "1"))


def test_code_of_a_refused_request_is_invalid(database: Database) -> None:
    code = create_code(database)
    database.write(lambda tx: refuse_request(tx, "telegram", "1"))
    assert approve(database, code) is None
    assert database.read(lambda tx: PAIRING_ADDRESS.keys(tx, "")) == []
    with pytest.raises(NotFound):
        database.write(lambda tx: refuse_request(tx, "telegram", "1"))


def test_approved_browser_is_signed_in_without_becoming_a_paired_person(database: Database) -> None:
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


def test_refused_browser_is_not_signed_in(database: Database) -> None:
    offer = database.write(lambda tx: offer_browser_code(tx, "Firefox"))
    assert offer is not None
    (waiting,) = database.read(lambda tx: tx.pairing.waiting())
    database.write(lambda tx: refuse_request(tx, "web", waiting.user_id))
    assert not database.read(lambda tx: is_waiting(tx, digest_token(offer[1])))
    assert approve(database, offer[0], "web") is None
    assert database.read(read_browsers) == {}


def test_browser_codes_per_minute_are_limited(database: Database) -> None:
    rules = PairingRules(per_minute=2)
    offers = [database.write(lambda tx: offer_browser_code(tx, "Bot", rules)) for _ in range(3)]
    assert [offer is not None for offer in offers] == [True, True, False]
