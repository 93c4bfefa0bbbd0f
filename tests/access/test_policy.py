"""Who may speak, and who may use which commands."""

import pytest
from msgspec import structs
from tests.gateway.incoming_messages import ANN, BEN, said

from talaria.access.policy import Access, AccessAllowed, AccessDenied, NeedsPairing
from talaria.commands.command import Command, CommandContext, select_usable_commands
from talaria.contracts.platform import Sender
from talaria.gateway.dispatcher import permitted_commands
from talaria.settings.model import Settings
from talaria.settings.sections.chats import AccessSettings as Rules
from talaria.settings.sections.chats import ChatNetworkSettings, PersonSettings

PRIVATE = said(ANN)
IN_GROUP = said(ANN, chat="-100", kind="group")


def paired() -> bool:
    return True


def unpaired() -> bool:
    return False


def access(rules: Rules | None = None, **more: object) -> Access:
    return Access(Settings(access=rules or Rules(), **more))  # type: ignore[arg-type]


def test_by_default_a_stranger_may_ask_in_private_and_hears_nothing_in_a_group() -> None:
    assert access().decide(PRIVATE, unpaired) == NeedsPairing()
    for kind in ("group", "channel", "thread"):
        assert isinstance(access().decide(said(ANN, chat="-100", kind=kind), unpaired), AccessDenied)


def test_without_pairing_a_stranger_hears_nothing() -> None:
    assert isinstance(access(Rules(pairing=False)).decide(PRIVATE, unpaired), AccessDenied)


def test_a_paired_sender_is_allowed_in_every_chat_of_the_network() -> None:
    assert access().decide(PRIVATE, paired) == AccessAllowed()
    assert access().decide(IN_GROUP, paired) == AccessAllowed()


def test_a_pairing_is_looked_up_only_if_no_setting_decides() -> None:
    asked: list[str] = []

    def look_up() -> bool:
        asked.append("store")
        return False

    for rules in (Rules(owners=("telegram:1",)), Rules(allowed=("telegram:1",)), Rules(everyone=True)):
        assert isinstance(access(rules).decide(PRIVATE, look_up), AccessAllowed)
    assert isinstance(access(Rules(blocked=("telegram:1",))).decide(PRIVATE, look_up), AccessDenied)
    assert asked == []
    assert access().decide(PRIVATE, look_up) == NeedsPairing()
    assert asked == ["store"]


def test_an_owner_is_known_by_any_id() -> None:
    rules = Rules(owners=("ann",))
    known = access(rules, people={"ann": PersonSettings(ids=("telegram:1", "matrix:@ann:example.org"))})
    assert known.decide(PRIVATE, unpaired) == AccessAllowed(owner=True)
    assert known.decide(said(Sender("@ann:example.org"), platform="matrix"), unpaired) == AccessAllowed(owner=True)
    assert known.decide(said(Sender("1"), platform="matrix"), unpaired) == NeedsPairing()
    assert known.decide(said(Sender("9"), platform="telegram"), unpaired, ids=("9", "1")) == AccessAllowed(owner=True)


@pytest.mark.parametrize(
    "settings",
    [
        Settings(access=Rules(allowed=("telegram:1",))),
        Settings(platforms={"telegram": ChatNetworkSettings(allowed=("1",))}),
        Settings(platforms={"telegram": ChatNetworkSettings(allowed=("telegram:1",))}),
    ],
)
def test_people_are_allowed_in_private_and_in_groups(settings: Settings) -> None:
    known = Access(settings)
    assert (known.decide(PRIVATE, unpaired), known.decide(IN_GROUP, unpaired)) == (AccessAllowed(), AccessAllowed())
    assert known.decide(said(BEN), unpaired) == NeedsPairing()
    assert isinstance(known.decide(said(BEN, chat="-100", kind="group"), unpaired), AccessDenied)
    assert known.decide(said(ANN, platform="discord"), unpaired) == NeedsPairing()


@pytest.mark.parametrize(
    "settings",
    [
        Settings(access=Rules(chats=("telegram:-100",))),
        Settings(platforms={"telegram": ChatNetworkSettings(chats=("-100",))}),
    ],
)
def test_everybody_may_speak_in_an_allowed_group_and_in_its_threads_only(settings: Settings) -> None:
    known = Access(settings)
    assert (
        known.decide(IN_GROUP, unpaired)
        == known.decide(said(BEN, chat="-100", kind="thread"), unpaired)
        == AccessAllowed()
    )
    assert isinstance(known.decide(said(ANN, chat="-200", kind="group"), unpaired), AccessDenied)
    assert known.decide(PRIVATE, unpaired) == NeedsPairing()


def test_a_private_chat_is_not_opened_by_the_list_of_groups() -> None:
    assert access(Rules(chats=("telegram:1",))).decide(PRIVATE, unpaired) == NeedsPairing()


def test_everybody_may_speak_only_where_that_was_said() -> None:
    assert access(Rules(everyone=True)).decide(PRIVATE, unpaired) == AccessAllowed()
    one = access(platforms={"telegram": ChatNetworkSettings(everyone=True)})
    assert one.decide(IN_GROUP, unpaired) == AccessAllowed()
    assert one.decide(said(ANN, platform="matrix"), unpaired) == NeedsPairing()


def test_who_is_blocked_hears_nothing_whatever_else_holds() -> None:
    rules = Rules(blocked=("telegram:1",), owners=("telegram:1",), allowed=("telegram:1",), everyone=True)
    assert isinstance(access(rules).decide(PRIVATE, paired), AccessDenied)
    assert isinstance(access(rules).decide(said(Sender("7")), paired, ids=("1",)), AccessDenied)


def test_an_unnamed_sender_matches_no_person() -> None:
    nobody = Sender("")
    assert isinstance(access().decide(said(nobody, chat="1"), unpaired), AccessDenied)
    assert (
        access(Rules(chats=("telegram:-100",))).decide(said(nobody, chat="-100", kind="channel"), unpaired)
        == AccessAllowed()
    )


def test_a_secret_that_was_proved_lets_in_but_makes_nobody_an_owner_and_does_not_help_who_is_blocked() -> None:
    vouched = structs.replace(PRIVATE, vouched=True)
    assert access(Rules(pairing=False)).decide(vouched, unpaired) == AccessAllowed()
    assert access(Rules(owners=("telegram:1",))).decide(vouched, unpaired) == AccessAllowed(owner=True)
    assert isinstance(access(Rules(blocked=("telegram:1",))).decide(vouched, unpaired), AccessDenied)


async def _nothing(context: CommandContext) -> None:
    """Do nothing."""


COMMANDS = (
    Command(name="new", category="Session", help="", run=_nothing, aliases=("clear",)),
    Command(name="model", category="Model", help="", run=_nothing),
    Command(name="sethome", category="Session", help="", run=_nothing, who="owner"),
)


def may_use(known: Access, sender: Sender, *, owner: bool = False) -> list[str]:
    permitted = permitted_commands(known, COMMANDS, said(sender), owner=owner)
    assert len(permitted) == len(COMMANDS)
    return [one.name for one in select_usable_commands(permitted, terminal=False, owner=owner)]


def test_where_nothing_is_said_commands_say_themselves_whose_they_are() -> None:
    assert may_use(access(), ANN) == ["new", "model"]
    assert may_use(access(), ANN, owner=True) == ["new", "model", "sethome"]


def test_commands_are_given_to_the_owner_to_the_allowed_or_to_people_by_name() -> None:
    rules = Rules(slash_access={"model": ("owner",), "/sethome": ("ben",), "clear": ("allowed",)})
    known = access(rules, people={"ben": PersonSettings(ids=("telegram:2",))})
    assert may_use(known, ANN) == ["new"]
    assert may_use(known, BEN) == ["new", "sethome"]
    assert may_use(known, ANN, owner=True) == ["new", "model", "sethome"]


def test_a_command_given_to_nobody_is_the_owners() -> None:
    assert may_use(access(Rules(slash_access={"new": ()})), ANN) == ["model"]
