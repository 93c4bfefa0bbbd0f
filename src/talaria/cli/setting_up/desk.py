"""What a set-up may ask before it writes anything: what is there already, and whether keys and tokens are right."""

from typing import TYPE_CHECKING, Literal, Protocol

from msgspec import Struct

if TYPE_CHECKING:  # named in types alone
    from talaria.contracts.models import Chosen

NetworkName = Literal["telegram", "discord", "slack", "slack_app", "matrix"]
Outcome = Literal["right", "refused", "unreachable", "late", "odd"]
EmbeddedState = Literal["installed", "missing", "off"]


class Tried(Struct, frozen=True):
    """How a key or token did: ``outcome`` for scripts, ``sentence`` for people.

    A provider that answered tells its ``models``, those that are known best first; ``good`` is one of them to begin
    with.
    """

    outcome: Outcome
    sentence: str
    models: tuple[str, ...] = ()
    good: str = ""

    @property
    def right(self) -> bool:
        """Whether it can be used."""
        return self.outcome == "right"


class ProviderOffer(Struct, frozen=True):
    """A provider that could be chosen; ``key_name`` is empty where it needs no key, ``own`` are those added by hand."""

    name: str
    title: str
    base_url: str
    key_name: str = ""
    local: bool = False
    own: bool = False


class Account(Struct, frozen=True):
    """A provider to be tried, as it would be written; what is empty stays as it is known."""

    provider: str
    base_url: str = ""
    key_name: str = ""
    key: str = ""


class FoundKey(Struct, frozen=True):
    """A key that is set: its name and where it comes from, not what it is."""

    name: str
    provider: str
    place: str


class FoundServer(Struct, frozen=True):
    """A model server that answers on this machine."""

    provider: str
    title: str
    base_url: str
    models: tuple[str, ...]


class Discovered(Struct, frozen=True):
    """What there is without any set-up; without a model that answers, ``trouble`` says why."""

    keys: tuple[FoundKey, ...]
    servers: tuple[FoundServer, ...]
    embedded: EmbeddedState
    chosen: "Chosen | None"
    trouble: str = ""


class SetupDesk(Protocol):
    """What a set-up can ask; the settings are read anew for each question."""

    def discover(self) -> Discovered:
        """Look for keys, servers on this machine and the embedded model: a third of a second at most."""

    def providers(self) -> tuple[ProviderOffer, ...]:
        """Every provider that is known or was added by hand, but the embedded model."""

    def try_account(self, account: Account) -> Tried:
        """Ask a provider for its models with this key; nothing is written."""

    def try_token(self, network: NetworkName, token: str, base_url: str = "") -> Tried:
        """Ask a chat network, or whoever answers at ``base_url``, whom a token belongs to."""
