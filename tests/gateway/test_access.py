"""Who may speak, and who may use which commands."""

import pytest
from msgspec import structs
from tests.gateway.arrivals import ANN, BEN, said

from talaria.commands.command import Command, Errand
from talaria.commands.using import usable
from talaria.contracts.platform import Sender
from talaria.gateway.access import Access, Allowed, Denied, NeedsPairing
from talaria.settings.chats import Access as Rules
from talaria.settings.chats import ChatNetwork, Person
from talaria.settings.model import Settings

PRIVATE = said(ANN)
IN_GROUP = said(ANN, chat="-100", kind="group")


def access(rules: Rules | None = None, **more: object) -> Access:
    return Access(Settings(access=rules or Rules(), **more))  # type: ignore[arg-type]


def test_by_default_a_stranger_may_ask_in_private_and_hears_nothing_in_a_group() -> None:
    assert access().decide(PRIVATE, False) == NeedsPairing()
    for kind in ("group", "channel", "thread"):
        assert isinstance(access().decide(said(ANN, chat="-100", kind=kind), False), Denied)


def test_without_pairing_a_stranger_hears_nothing() -> None:
    assert isinstance(access(Rules(pairing=False)).decide(PRIVATE, False), Denied)


def test_whoever_was_let_in_may_speak_everywhere_on_that_network() -> None:
    assert access().decide(PRIVATE, True) == Allowed()
    assert access().decide(IN_GROUP, True) == Allowed()


def test_an_owner_is_known_by_any_id() -> None:
    rules = Rules(owners=("ann",))
    known = access(rules, people={"ann": Person(ids=("telegram:1", "matrix:@ann:example.org"))})
    assert known.decide(PRIVATE, False) == Allowed(owner=True)
    assert known.decide(said(Sender("@ann:example.org"), platform="matrix"), False) == Allowed(owner=True)
    assert known.decide(said(Sender("1"), platform="matrix"), False) == NeedsPairing()
    assert known.decide(said(Sender("9"), platform="telegram"), False, ids=("9", "1")) == Allowed(owner=True)


@pytest.mark.parametrize(
    "settings",
    [
        Settings(access=Rules(allowed=("telegram:1",))),
        Settings(platforms={"telegram": ChatNetwork(allowed=("1",))}),
        Settings(platforms={"telegram": ChatNetwork(allowed=("telegram:1",))}),
    ],
)
def test_people_are_allowed_in_private_and_in_groups(settings: Settings) -> None:
    known = Access(settings)
    assert (known.decide(PRIVATE, False), known.decide(IN_GROUP, False)) == (Allowed(), Allowed())
    assert known.decide(said(BEN), False) == NeedsPairing()
    assert isinstance(known.decide(said(BEN, chat="-100", kind="group"), False), Denied)
    assert known.decide(said(ANN, platform="discord"), False) == NeedsPairing()


@pytest.mark.parametrize(
    "settings",
    [
        Settings(access=Rules(chats=("telegram:-100",))),
        Settings(platforms={"telegram": ChatNetwork(chats=("-100",))}),
    ],
)
def test_everybody_may_speak_in_an_allowed_group_and_in_its_threads_only(settings: Settings) -> None:
    known = Access(settings)
    assert known.decide(IN_GROUP, False) == known.decide(said(BEN, chat="-100", kind="thread"), False) == Allowed()
    assert isinstance(known.decide(said(ANN, chat="-200", kind="group"), False), Denied)
    assert known.decide(PRIVATE, False) == NeedsPairing()


def test_a_private_chat_is_not_opened_by_the_list_of_groups() -> None:
    assert access(Rules(chats=("telegram:1",))).decide(PRIVATE, False) == NeedsPairing()


def test_everybody_may_speak_only_where_that_was_said() -> None:
    assert access(Rules(everyone=True)).decide(PRIVATE, False) == Allowed()
    one = access(platforms={"telegram": ChatNetwork(everyone=True)})
    assert one.decide(IN_GROUP, False) == Allowed()
    assert one.decide(said(ANN, platform="matrix"), False) == NeedsPairing()


def test_who_is_blocked_hears_nothing_whatever_else_holds() -> None:
    rules = Rules(blocked=("telegram:1",), owners=("telegram:1",), allowed=("telegram:1",), everyone=True)
    assert isinstance(access(rules).decide(PRIVATE, True), Denied)
    assert isinstance(access(rules).decide(said(Sender("7")), True, ids=("1",)), Denied)


def test_nobody_in_particular_is_not_somebody() -> None:
    nobody = Sender("")
    assert isinstance(access().decide(said(nobody, chat="1"), False), Denied)
    assert access(Rules(chats=("telegram:-100",))).decide(said(nobody, chat="-100", kind="channel"), False) == Allowed()


def test_a_secret_that_was_proved_lets_in_but_makes_nobody_an_owner_and_does_not_help_who_is_blocked() -> None:
    vouched = structs.replace(PRIVATE, vouched=True)
    assert access(Rules(pairing=False)).decide(vouched, False) == Allowed()
    assert access(Rules(owners=("telegram:1",))).decide(vouched, False) == Allowed(owner=True)
    assert isinstance(access(Rules(blocked=("telegram:1",))).decide(vouched, False), Denied)


async def _nothing(errand: Errand) -> None:
    """Do nothing."""


COMMANDS = (
    Command(name="new", category="Session", help="", run=_nothing, aliases=("clear",)),
    Command(name="model", category="Model", help="", run=_nothing),
    Command(name="sethome", category="Session", help="", run=_nothing, who="owner"),
)


def may_use(known: Access, sender: Sender, *, owner: bool = False) -> list[str]:
    permitted = known.permitted(COMMANDS, said(sender), owner=owner)
    assert len(permitted) == len(COMMANDS)
    return [one.name for one in usable(permitted, terminal=False, owner=owner)]


def test_where_nothing_is_said_commands_say_themselves_whose_they_are() -> None:
    assert may_use(access(), ANN) == ["new", "model"]
    assert may_use(access(), ANN, owner=True) == ["new", "model", "sethome"]


def test_commands_are_given_to_the_owner_to_the_allowed_or_to_people_by_name() -> None:
    rules = Rules(slash_access={"model": ("owner",), "/sethome": ("ben",), "clear": ("allowed",)})
    known = access(rules, people={"ben": Person(ids=("telegram:2",))})
    assert may_use(known, ANN) == ["new"]
    assert may_use(known, BEN) == ["new", "sethome"]
    assert may_use(known, ANN, owner=True) == ["new", "model", "sethome"]


def test_a_command_given_to_nobody_is_the_owners() -> None:
    assert may_use(access(Rules(slash_access={"new": ()})), ANN) == ["model"]
