"""Access policy: who may talk to the agent, use which commands and under which names; by default nobody."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import datetime

from msgspec import Struct

from talaria.contracts.platform import Incoming, Sender
from talaria.contracts.store import Transaction
from talaria.core.addresses import Address
from talaria.sessions.keys import list_user_ids
from talaria.settings.errors import find_nearest
from talaria.settings.model import Settings
from talaria.settings.sections.chats import ChatNetworkSettings, PersonSettings

ALLOWED = "allowed"
_KINDS = {"owner", "allowed"}


class AccessAllowed(Struct, frozen=True):
    """Decision that the sender may talk to the agent; ``owner`` marks an owner of it."""

    owner: bool = False


class AccessDenied(Struct, frozen=True):
    """Decision that the sender gets no answer; ``reason`` is for the log."""

    reason: str


class NeedsPairing(Struct, frozen=True):
    """Decision that the sender gets a pairing code, which the owner can approve."""


Decision = AccessAllowed | AccessDenied | NeedsPairing


class Access:
    """Access rules of one version of the settings. Immutable, and independent of the store."""

    def __init__(self, settings: Settings) -> None:
        self.people = People(settings.people)
        self._rules = settings.access
        self._networks = settings.platforms
        self._command_rules = {name.removeprefix("/"): set(who) for name, who in settings.access.slash_access.items()}

    def decide(self, incoming: Incoming, is_paired: Callable[[], bool], ids: Collection[str] = ()) -> Decision:
        """Return whether a sender may talk to the agent; ``ids`` are their other ids on that network.

        ``is_paired`` looks up a pairing of the sender. It is called only if no setting decides first.
        """
        network = self._get_network_settings(incoming)
        names = self._collect_names(incoming, ids)
        if names & set(self._rules.blocked):
            return AccessDenied("blocked")
        if names & set(self._rules.owners):
            return AccessAllowed(owner=True)
        if incoming.vouched or names & {*self._rules.allowed, *_qualify_ids(incoming, network.allowed)}:
            return AccessAllowed()
        if self._rules.everyone or network.everyone or self._is_open(incoming, network) or is_paired():
            return AccessAllowed()
        if incoming.address.chat_type != "private":
            return AccessDenied("neither the chat nor the person is allowed")
        return NeedsPairing() if self._rules.pairing and names else AccessDenied("not allowed, and pairing is off")

    def is_owner(self, platform: str, user_id: str) -> bool | None:
        """Return whether a user owns this agent; ``None`` if the settings name no owner."""
        if not self._rules.owners:
            return None
        return bool(self.people.names(platform, {user_id}) & set(self._rules.owners))

    def may_use_command(
        self, names: Collection[str], incoming: Incoming, *, default: bool, ids: Collection[str] = ()
    ) -> bool:
        """Return whether a sender other than the owner may use the command with these names.

        ``default`` is the command's own rule. It applies unless the settings name the command.
        """
        rules = [self._command_rules[name] for name in names if name in self._command_rules]
        if not rules:
            return default
        sender_names = self._collect_names(incoming, ids)
        return any(ALLOWED in rule or sender_names & rule for rule in rules)

    def _is_open(self, incoming: Incoming, network: ChatNetworkSettings) -> bool:
        """Return whether everyone may talk in this chat; a private chat is never open."""
        if incoming.address.chat_type == "private":
            return False
        chat = f"{incoming.address.platform}:{incoming.address.chat_id}"
        return chat in {*self._rules.chats, *_qualify_ids(incoming, network.chats)}

    def _get_network_settings(self, incoming: Incoming) -> ChatNetworkSettings:
        return self._networks.get(incoming.address.platform, ChatNetworkSettings())

    def _collect_names(self, incoming: Incoming, ids: Collection[str]) -> frozenset[str]:
        return self.people.names(incoming.address.platform, {incoming.sender.id, *ids})


def _qualify_ids(incoming: Incoming, ids: Iterable[str]) -> set[str]:
    """Return ids prefixed with their network name; the settings may contain them with or without it."""
    platform = incoming.address.platform
    return {one if one.startswith(f"{platform}:") else f"{platform}:{one}" for one in ids}


def is_paired(tx: Transaction, platform: str, ids: Iterable[str]) -> bool:
    """Return whether the owner has paired a user with one of these ids."""
    return any(tx.pairing.is_paired(platform, one) for one in ids)


def may_speak(tx: Transaction, settings: Settings, address: Address, sender: Sender, now: datetime) -> bool:
    """Return whether a message of this sender would be admitted; one who would get a code is not."""
    ids = list_user_ids(tx, address.platform, sender.id)
    probe = Incoming(external_id="", address=address, sender=sender, at=now)
    decision = Access(settings).decide(probe, lambda: is_paired(tx, address.platform, ids), ids)
    return isinstance(decision, AccessAllowed)


class People:
    """Lookup of people in the settings by their network ids."""

    def __init__(self, people: Mapping[str, PersonSettings]) -> None:
        self._names = {one: name for name, person in people.items() for one in person.ids}

    def names(self, platform: str, ids: Collection[str]) -> frozenset[str]:
        """Return all names of a user: ``platform:id`` for each id, plus the name in the settings."""
        full = {f"{platform}:{one}" for one in ids if one}
        return frozenset(full | {self._names[one] for one in full if one in self._names})

    def person(self, platform: str, ids: Collection[str]) -> str:
        """Return the name under which a user owns sessions: from the settings, else ``platform:`` and the first id."""
        owner_ids = (self._names.get(f"{platform}:{one}") for one in ids)
        return next((name for name in owner_ids if name), f"{platform}:{next(iter(ids))}")


def find_owner_id(settings: Settings, platform: str) -> str:
    """Return the owner's first id on a network, or an empty string if the settings name none."""
    owner_ids = [
        one
        for who in settings.access.owners
        for one in (settings.people[who].ids if who in settings.people else (who,))
    ]
    return next((one.partition(":")[2] for one in owner_ids if one.startswith(f"{platform}:")), "")


def list_open_access(settings: Settings) -> Iterator[str]:
    """Yield a sentence for each chat network that strangers may use without pairing."""
    if settings.access.everyone:
        yield "Anyone on any chat network can talk to the agent at your expense: `access.everyone` is on."
        return
    for name, network in settings.platforms.items():
        if network.everyone:
            yield (f"Anyone on {name} can talk to the agent at your expense: `platforms.{name}.everyone` is on.")


def list_unknown_names(settings: Settings) -> Iterator[str]:
    """Yield a sentence for each unknown name in the access rules."""
    access = settings.access
    lists = {"owners": access.owners, "allowed": access.allowed, "blocked": access.blocked}
    lists |= {f"slash_access.{name}": who for name, who in access.slash_access.items()}
    for key, names in lists.items():
        kinds = _KINDS if key.startswith("slash_access.") else set()
        for name in names:
            if ":" not in name and name not in settings.people and name not in kinds:
                near = find_nearest(name, [*settings.people, *kinds], similarity=0.6)  # names of people are short
                advice = f"the nearest is `{near}`" if near else "use PLATFORM:ID, or add the name to `people`"
                yield f"`access.{key}` names an unknown person, `{name}`; {advice}."
