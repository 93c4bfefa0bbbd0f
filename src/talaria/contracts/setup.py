"""Probes of the setup: existing configuration, and tests of keys and tokens before writing."""

from typing import TYPE_CHECKING, Literal, Protocol

from msgspec import Struct

if TYPE_CHECKING:  # used only in annotations
    from contextlib import AbstractContextManager
    from pathlib import Path

    from talaria.contracts.imports import Importer
    from talaria.contracts.provider import ChosenModel

NetworkName = Literal["telegram", "discord", "slack", "slack_app", "matrix"]
Outcome = Literal["right", "refused", "unreachable", "late", "odd"]
EmbeddedState = Literal["installed", "missing", "off"]


class ProbeResult(Struct, frozen=True):
    """Result of testing a key or token: ``outcome`` for scripts, ``sentence`` for people.

    A provider that answered returns its ``models``, best known first; ``good`` is a recommended one.
    """

    outcome: Outcome
    sentence: str
    models: tuple[str, ...] = ()
    good: str = ""

    @property
    def right(self) -> bool:
        """Return whether the key or token can be used."""
        return self.outcome == "right"


class ProviderOffer(Struct, frozen=True):
    """Provider to choose; ``key_name`` is empty if it needs no key, ``own`` is true if added by hand.

    ``login`` is the sign-in that it needs instead of a key.
    """

    name: str
    title: str
    base_url: str
    key_name: str = ""
    local: bool = False
    own: bool = False
    login: str = ""


class TrialAccount(Struct, frozen=True):
    """Provider to test, as it would be written; empty fields keep their known values."""

    provider: str
    base_url: str = ""
    key_name: str = ""
    key: str = ""


class SearchEngineOffer(Struct, frozen=True, kw_only=True):
    """Web search engine to choose; ``gap`` says what is missing to use it, ``used`` whether searches do."""

    name: str
    title: str
    key_name: str
    gap: str
    has_key: bool
    used: bool


class FoundKey(Struct, frozen=True):
    """Key that is set: its name and origin, without its value."""

    name: str
    provider: str
    place: str


class FoundServer(Struct, frozen=True):
    """Model server that answers on this machine."""

    provider: str
    title: str
    base_url: str
    models: tuple[str, ...]


class Discovery(Struct, frozen=True):
    """Models that work without setup; if there are none, ``trouble`` has the reason."""

    keys: tuple[FoundKey, ...]
    servers: tuple[FoundServer, ...]
    embedded: EmbeddedState
    chosen: "ChosenModel | None"
    trouble: str = ""


class SearchProbes(Protocol):
    """Probes of the web search engines; the settings are read again for each call."""

    def engines(self) -> tuple[SearchEngineOffer, ...]:
        """All engines: those in use first, in their order."""

    def try_engine(self, engine: str, key: str = "") -> ProbeResult:
        """Send a query to an engine, with this key or else the stored one."""


class SetupProbes(Protocol):
    """Probes for the setup; the settings are read again for each call."""

    def discover(self) -> Discovery:
        """Find keys, local servers and the embedded model; two seconds at most for a server that doesn't answer."""

    def providers(self) -> tuple[ProviderOffer, ...]:
        """Known and custom providers, without the embedded model."""

    def try_account(self, account: TrialAccount) -> ProbeResult:
        """Query a provider for its models with this key; writes nothing."""

    def try_login(self, provider: str) -> ProbeResult:
        """Query a provider for its models with the stored sign-in."""

    def try_model(self, provider: str, model: str) -> ProbeResult:
        """Request a reply of a few tokens, with the stored settings and keys."""

    def try_token(self, network: NetworkName, token: str, base_url: str = "") -> ProbeResult:
        """Query a chat network, or the server at ``base_url``, for the account of a token."""

    def search(self) -> SearchProbes:
        """Probes of the web search engines."""

    def open_importer(self, agent: str, path: "Path | None") -> "AbstractContextManager[Importer]":
        """The import of another agent's home into this profile; without a path, of its usual home."""
