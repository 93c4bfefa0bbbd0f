"""Access policy: which senders are answered, and which commands they may use."""

import pytest
from msgspec import structs
from tests.gateway.incoming_messages import ANN, BEN, incoming_message

from talaria.access.policy import Access, AccessAllowed, AccessDenied, NeedsPairing
from talaria.commands.command import Command, CommandContext, select_usable_commands
from talaria.contracts.platform import Sender
from talaria.gateway.dispatcher import list_permitted_commands
from talaria.settings.model import Settings
from talaria.settings.sections.chats import AccessSettings as Rules
from talaria.settings.sections.chats import ChatNetworkSettings, PersonSettings

PRIVATE = incoming_message(ANN)
IN_GROUP = incoming_message(ANN, chat="-100", kind="group")


def paired() -> bool:
    return True


def unpaired() -> bool:
    return False


def access(rules: Rules | None = None, **more: object) -> Access:
    return Access(Settings(access=rules or Rules(), **more))  # type: ignore[arg-type]


def test_unknown_sender_may_pair_in_private_and_is_denied_in_groups() -> None:
    assert access().decide(PRIVATE, unpaired) == NeedsPairing()
    for kind in ("group", "channel", "thread"):
        assert isinstance(access().decide(incoming_message(ANN, chat="-100", kind=kind), unpaired), AccessDenied)


def test_unknown_sender_is_denied_if_pairing_is_disabled() -> None:
    assert isinstance(access(Rules(pairing=False)).decide(PRIVATE, unpaired), AccessDenied)


def test_a_paired_sender_is_allowed_in_every_chat_of_the_network() -> None:
    assert access().decide(PRIVATE, paired) == AccessAllowed()
    assert access().decide(IN_GROUP, paired) == AccessAllowed()


def test_a_pairing_is_looked_up_only_if_no_setting_decides() -> None:
    lookups: list[str] = []

    def look_up() -> bool:
        lookups.append("store")
        return False

    for rules in (Rules(owners=("telegram:1",)), Rules(allowed=("telegram:1",)), Rules(everyone=True)):
        assert isinstance(access(rules).decide(PRIVATE, look_up), AccessAllowed)
    assert isinstance(access(Rules(blocked=("telegram:1",))).decide(PRIVATE, look_up), AccessDenied)
    assert lookups == []
    assert access().decide(PRIVATE, look_up) == NeedsPairing()
    assert lookups == ["store"]


def test_owner_is_recognised_by_any_of_their_ids() -> None:
    rules = Rules(owners=("ann",))
    policy = access(rules, people={"ann": PersonSettings(ids=("telegram:1", "matrix:@ann:example.org"))})
    assert policy.decide(PRIVATE, unpaired) == AccessAllowed(owner=True)
    assert policy.decide(incoming_message(Sender("@ann:example.org"), platform="matrix"), unpaired) == AccessAllowed(
        owner=True
    )
    assert policy.decide(incoming_message(Sender("1"), platform="matrix"), unpaired) == NeedsPairing()
    assert policy.decide(incoming_message(Sender("9"), platform="telegram"), unpaired, ids=("9", "1")) == AccessAllowed(
        owner=True
    )


@pytest.mark.parametrize(
    "settings",
    [
        Settings(access=Rules(allowed=("telegram:1",))),
        Settings(platforms={"telegram": ChatNetworkSettings(allowed=("1",))}),
        Settings(platforms={"telegram": ChatNetworkSettings(allowed=("telegram:1",))}),
    ],
)
def test_allowed_sender_is_allowed_in_private_and_in_groups(settings: Settings) -> None:
    policy = Access(settings)
    assert (policy.decide(PRIVATE, unpaired), policy.decide(IN_GROUP, unpaired)) == (AccessAllowed(), AccessAllowed())
    assert policy.decide(incoming_message(BEN), unpaired) == NeedsPairing()
    assert isinstance(policy.decide(incoming_message(BEN, chat="-100", kind="group"), unpaired), AccessDenied)
    assert policy.decide(incoming_message(ANN, platform="discord"), unpaired) == NeedsPairing()


@pytest.mark.parametrize(
    "settings",
    [
        Settings(access=Rules(chats=("telegram:-100",))),
        Settings(platforms={"telegram": ChatNetworkSettings(chats=("-100",))}),
    ],
)
def test_any_sender_is_allowed_in_an_allowed_group_and_its_threads(settings: Settings) -> None:
    policy = Access(settings)
    assert (
        policy.decide(IN_GROUP, unpaired)
        == policy.decide(incoming_message(BEN, chat="-100", kind="thread"), unpaired)
        == AccessAllowed()
    )
    assert isinstance(policy.decide(incoming_message(ANN, chat="-200", kind="group"), unpaired), AccessDenied)
    assert policy.decide(PRIVATE, unpaired) == NeedsPairing()


def test_allowed_chats_do_not_allow_private_chats() -> None:
    assert access(Rules(chats=("telegram:1",))).decide(PRIVATE, unpaired) == NeedsPairing()


def test_everyone_setting_applies_to_its_own_network_only() -> None:
    assert access(Rules(everyone=True)).decide(PRIVATE, unpaired) == AccessAllowed()
    one = access(platforms={"telegram": ChatNetworkSettings(everyone=True)})
    assert one.decide(IN_GROUP, unpaired) == AccessAllowed()
    assert one.decide(incoming_message(ANN, platform="matrix"), unpaired) == NeedsPairing()


def test_blocked_sender_is_denied_despite_any_other_rule() -> None:
    rules = Rules(blocked=("telegram:1",), owners=("telegram:1",), allowed=("telegram:1",), everyone=True)
    assert isinstance(access(rules).decide(PRIVATE, paired), AccessDenied)
    assert isinstance(access(rules).decide(incoming_message(Sender("7")), paired, ids=("1",)), AccessDenied)


def test_sender_without_id_matches_no_person() -> None:
    unnamed = Sender("")
    assert isinstance(access().decide(incoming_message(unnamed, chat="1"), unpaired), AccessDenied)
    assert (
        access(Rules(chats=("telegram:-100",))).decide(incoming_message(unnamed, chat="-100", kind="channel"), unpaired)
        == AccessAllowed()
    )


def test_verified_secret_allows_a_sender_but_does_not_make_an_owner_or_unblock() -> None:
    verified = structs.replace(PRIVATE, vouched=True)
    assert access(Rules(pairing=False)).decide(verified, unpaired) == AccessAllowed()
    assert access(Rules(owners=("telegram:1",))).decide(verified, unpaired) == AccessAllowed(owner=True)
    assert isinstance(access(Rules(blocked=("telegram:1",))).decide(verified, unpaired), AccessDenied)


async def _nothing(context: CommandContext) -> None:
    """Do nothing."""


COMMANDS = (
    Command(name="new", category="Session", help="", run=_nothing, aliases=("clear",)),
    Command(name="model", category="Model", help="", run=_nothing),
    Command(name="sethome", category="Session", help="", run=_nothing, who="owner"),
)


def may_use(policy: Access, sender: Sender, *, owner: bool = False) -> list[str]:
    permitted = list_permitted_commands(policy, COMMANDS, incoming_message(sender), owner=owner)
    assert len(permitted) == len(COMMANDS)
    return [one.name for one in select_usable_commands(permitted, terminal=False, owner=owner)]


def test_commands_without_rules_use_their_own_permission() -> None:
    assert may_use(access(), ANN) == ["new", "model"]
    assert may_use(access(), ANN, owner=True) == ["new", "model", "sethome"]


def test_slash_access_permits_owner_allowed_senders_or_named_people() -> None:
    rules = Rules(slash_access={"model": ("owner",), "/sethome": ("ben",), "clear": ("allowed",)})
    policy = access(rules, people={"ben": PersonSettings(ids=("telegram:2",))})
    assert may_use(policy, ANN) == ["new"]
    assert may_use(policy, BEN) == ["new", "sethome"]
    assert may_use(policy, ANN, owner=True) == ["new", "model", "sethome"]


def test_command_with_an_empty_rule_is_for_the_owner_only() -> None:
    assert may_use(access(Rules(slash_access={"new": ()})), ANN) == ["model"]
