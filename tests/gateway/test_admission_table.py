"""Outcomes of admission for every combination of access rules, pairing, chat and update, and of reset rules."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import product
from typing import NamedTuple

import pytest
from msgspec import structs
from tests.gateway.incoming_messages import BEN, incoming_message
from tests.storage.engines import StoreLocation

from talaria.contracts.platform import Incoming
from talaria.contracts.store import Database, Transaction
from talaria.contracts.stores.access import PairedPerson, PairingRules
from talaria.contracts.stores.queues import Arrival
from talaria.contracts.stores.sessions import NewSession
from talaria.core.addresses import ChatType
from talaria.core.ids import new_id, new_worker_id
from talaria.core.messages import Message, Text
from talaria.gateway.admission import Admitted, Outcome, Refusal, admit, make_admission_rules
from talaria.gateway.session_reset import mark_flushed
from talaria.sessions.keys import build_session_key
from talaria.settings.model import Settings
from talaria.settings.sections.chats import AccessSettings, ChatNetworkSettings
from talaria.testing.clock import NOON, SettableClock

WORKER = new_worker_id()
KINDS: tuple[ChatType, ...] = ("private", "group", "thread", "channel")
STANDINGS = ("stranger", "blocked", "owner", "allowed", "allowed on the network", "paired")
OPENINGS = ("", "everyone", "everyone on the network", "chat", "chat on the network")
FORMS = ("text", "command", "button", "reaction", "overheard")


@pytest.fixture
def database(sqlite_location: StoreLocation, clock: SettableClock) -> Iterator[Database]:
    """A store of one engine: differences between engines are tested with the contracts."""
    opened = sqlite_location.open(clock, WORKER)
    yield opened
    opened.close()


class _RollBack(Exception):
    def __init__(self, outcome: Outcome) -> None:
        super().__init__()
        self.outcome = outcome


class Case(NamedTuple):
    standing: str
    opening: str
    pairing: bool
    kind: ChatType
    vouched: bool
    form: str


def expected_outcome(case: Case) -> str:
    """Return the outcome as the documents describe it, in the order in which rules win."""
    in_open_chat = case.opening.startswith("chat") and case.kind != "private"
    is_known = case.standing != "stranger" or case.vouched or case.opening.startswith("everyone") or in_open_chat
    match case:
        case Case(standing="blocked"):
            return "ignored"
        case _ if is_known:
            if case.form == "overheard":
                return "ignored"
            stored = case.form in {"text", "command"}
            return f"{'owner' if case.standing == 'owner' else 'guest'}{' stored' if stored else ''}"
        case Case(kind="private", pairing=True) if case.form != "reaction":
            return "code"
        case _:
            return "ignored"


def settings_of(case: Case) -> Settings:
    ben, chat = ("telegram:2",), ("telegram:-100",)
    return Settings(
        access=AccessSettings(
            pairing=case.pairing,
            everyone=case.opening == "everyone",
            chats=chat if case.opening == "chat" else (),
            owners=ben if case.standing == "owner" else ("telegram:1",),
            allowed=ben if case.standing == "allowed" else (),
            blocked=ben if case.standing == "blocked" else (),
        ),
        platforms={
            "telegram": ChatNetworkSettings(
                everyone=case.opening == "everyone on the network",
                chats=("-100",) if case.opening == "chat on the network" else (),
                allowed=("2",) if case.standing == "allowed on the network" else (),
            )
        },
    )


def update_of(case: Case) -> Incoming:
    update = incoming_message(BEN, chat="" if case.kind == "private" else "-100", kind=case.kind)
    return structs.replace(
        update,
        vouched=case.vouched,
        text={"text": "Hello", "command": "/new", "overheard": "Hello"}.get(case.form, ""),
        button="yes" if case.form == "button" else "",
        reaction="👍" if case.form == "reaction" else "",
        addressed=case.form != "overheard",
    )


def name_of(outcome: Outcome) -> str:
    match outcome:
        case Refusal():
            return "code"
        case Admitted(participant=participant, item=item):
            return f"{'owner' if participant.is_owner else 'guest'}{' stored' if item else ''}"
        case _:
            return "ignored"


def try_out(database: Database, work: Callable[[Transaction], Outcome]) -> Outcome:
    """Return the outcome of a transaction, and leave nothing of it in the store."""

    def roll_back(tx: Transaction) -> None:
        raise _RollBack(work(tx))

    with pytest.raises(_RollBack) as ended:
        database.write(roll_back)
    return ended.value.outcome


def pair(tx: Transaction) -> None:
    person = PairedPerson(platform="telegram", user_id="2", name="Ben")
    assert tx.pairing.offer(person, "hash", PairingRules())
    assert tx.pairing.approve("telegram", "hash", PairingRules())


@pytest.mark.slow
def test_access_and_pairing_decide_as_documented(database: Database) -> None:
    wrong = []
    for case in map(Case._make, product(STANDINGS, OPENINGS, (True, False), KINDS, (True, False), FORMS)):
        rules, update = make_admission_rules(settings_of(case), "telegram", WORKER), update_of(case)

        def work(tx: Transaction, case: Case = case) -> Outcome:
            if case.standing == "paired":
                pair(tx)
            return admit(tx, update, rules)  # noqa: B023 (runs within this round)

        found = name_of(try_out(database, work))
        if found != expected_outcome(case):
            wrong.append((case, found))
    assert wrong == []


class ResetCase(NamedTuple):
    policy: str
    idle_hours: int
    has_messages: bool
    has_pending: bool
    is_flushed: bool
    form: str


def is_reset_expected(case: ResetCase) -> bool:
    if not case.has_messages or case.has_pending or case.form != "text":
        return False
    idle, daily = case.idle_hours >= 2, case.idle_hours >= 15  # the policies say 2 hours and 3 o'clock; it was noon
    return case.is_flushed or {"never": False, "idle": idle, "daily": daily, "both": idle or daily}[case.policy]


def bind_session(tx: Transaction, case: ResetCase) -> None:
    """Bind a session that was last active when the case says so to Ben's chat."""
    session = tx.sessions.create(NewSession(source="telegram", owner="telegram:2"))
    address = incoming_message(BEN).address
    tx.bindings.bind(build_session_key(address), session.id, address)
    if case.has_messages:
        tx.messages.append(session.id, [Message(role="user", parts=(Text("Hello"),), at=NOON)])
    if case.has_pending:
        tx.inbox.add(Arrival(session_id=session.id, source="telegram", external_id=new_id(), payload="{}"))
    binding = tx.bindings.get(build_session_key(address))
    assert binding is not None
    if case.is_flushed:
        mark_flushed(tx, binding, "idle")


def test_resets_happen_as_documented(database: Database, clock: SettableClock) -> None:
    wrong = []
    flags = (True, False)
    policies = ("never", "idle", "daily", "both")
    for case in map(ResetCase._make, product(policies, (0, 1, 2, 14, 15), flags, flags, flags, ("text", "button"))):
        network = ChatNetworkSettings(reset=case.policy, reset_idle_minutes=120, reset_hour=3)  # type: ignore[arg-type]
        settings = Settings(access=AccessSettings(everyone=True), platforms={"telegram": network})
        rules = structs.replace(make_admission_rules(settings, "telegram", WORKER), zone=NOON.tzinfo)
        update = structs.replace(incoming_message(BEN), at=clock.now() + timedelta(hours=case.idle_hours))
        if case.form == "button":
            update = structs.replace(update, text="", button="yes")

        def work(tx: Transaction, case: ResetCase = case) -> Outcome:
            bind_session(tx, case)
            return admit(tx, update, rules)  # noqa: B023 (runs within this round)

        outcome = try_out(database, work)
        assert isinstance(outcome, Admitted)
        reset = bool(outcome.ended_session)
        if (reset, bool(outcome.notice), outcome.is_new_session) != (is_reset_expected(case),) * 3:
            wrong.append((case, outcome))
    assert wrong == []
