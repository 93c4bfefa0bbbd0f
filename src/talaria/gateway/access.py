"""Who may speak to the agent, and who may use which of its commands: nobody, unless something says so."""

from collections.abc import Collection, Iterable, Sequence

from msgspec import Struct, structs

from talaria.commands.command import Command
from talaria.contracts.platform import Incoming
from talaria.gateway.identity import People
from talaria.settings.chats import ChatNetwork
from talaria.settings.model import Settings

ALLOWED = "allowed"


class Allowed(Struct, frozen=True):
    """They may speak; ``owner`` says that this is their agent."""

    owner: bool = False


class Denied(Struct, frozen=True):
    """They get no answer; ``reason`` is for the log."""

    reason: str


class NeedsPairing(Struct, frozen=True):
    """They get a code, with which the owner can let them in."""


Decision = Allowed | Denied | NeedsPairing


class Access:
    """Decides by the settings alone; whoever asks finds out what the store knows."""

    def __init__(self, settings: Settings) -> None:
        self.people = People(settings.people)
        self._rules = settings.access
        self._networks = settings.platforms
        self._slash = {name.removeprefix("/"): set(who) for name, who in settings.access.slash_access.items()}

    def decide(self, incoming: Incoming, paired: bool, ids: Collection[str] = ()) -> Decision:
        """Tell whether somebody may speak; ``ids`` are others on that network that are known to be theirs."""
        network = self._network(incoming)
        names = self._names(incoming, ids)
        if names & set(self._rules.blocked):
            return Denied("blocked")
        if names & set(self._rules.owners):
            return Allowed(owner=True)
        if paired or incoming.vouched or names & {*self._rules.allowed, *_full(incoming, network.allowed)}:
            return Allowed()
        if self._rules.everyone or network.everyone or self._is_open(incoming, network):
            return Allowed()
        if incoming.address.chat_type != "private":
            return Denied("neither the chat nor the person is allowed")
        return NeedsPairing() if self._rules.pairing and names else Denied("not allowed, and pairing is off")

    def is_owner(self, platform: str, user_id: str) -> bool | None:
        """Tell whether this is somebody's agent; ``None`` as long as nobody is named as its owner."""
        if not self._rules.owners:
            return None
        return bool(self.people.names(platform, {user_id}) & set(self._rules.owners))

    def permitted(
        self, commands: Sequence[Command], incoming: Incoming, *, owner: bool, ids: Collection[str] = ()
    ) -> tuple[Command, ...]:
        """Return the commands as they are for somebody: what they may not use is marked as the owner's."""
        if owner:
            return tuple(commands)
        names = self._names(incoming, ids)
        return tuple(structs.replace(one, who="anyone" if self._may_use(one, names) else "owner") for one in commands)

    def _may_use(self, command: Command, names: frozenset[str]) -> bool:
        said = [self._slash[name] for name in command.names if name in self._slash]
        if not said:
            return command.who == "anyone"
        return any(ALLOWED in who or names & who for who in said)

    def _is_open(self, incoming: Incoming, network: ChatNetwork) -> bool:
        """Tell whether everybody may speak in this chat; a private chat is never one of those."""
        if incoming.address.chat_type == "private":
            return False
        chat = f"{incoming.address.platform}:{incoming.address.chat_id}"
        return chat in {*self._rules.chats, *_full(incoming, network.chats)}

    def _network(self, incoming: Incoming) -> ChatNetwork:
        return self._networks.get(incoming.address.platform, ChatNetwork())

    def _names(self, incoming: Incoming, ids: Collection[str]) -> frozenset[str]:
        return self.people.names(incoming.address.platform, {incoming.sender.id, *ids})


def _full(incoming: Incoming, ids: Iterable[str]) -> set[str]:
    """Return ids of a network with its name in front, as it may also be written there."""
    platform = incoming.address.platform
    return {one if one.startswith(f"{platform}:") else f"{platform}:{one}" for one in ids}
