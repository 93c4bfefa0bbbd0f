"""Setup: existing configuration, tests of keys and webhooks before they are used, and sign-ins with a subscription."""

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Literal, Protocol

from msgspec import Struct

if TYPE_CHECKING:  # used only in annotations
    from collections.abc import Awaitable, Callable, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from talaria.contracts.imports import Importer
    from talaria.contracts.provider import ChosenModel

Outcome = Literal["right", "refused", "unreachable", "late", "odd"]
EmbeddedState = Literal["installed", "missing", "off"]
SignInWay = Literal["auto", "browser", "device", "paste"]
LoginCondition = Literal["signed in", "needs sign-in", "signed out"]


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


class NetworkTrial(Struct, frozen=True):
    """Answers of a chat network's setup, to be tested; ``base_url`` replaces the network's public address.

    ``account`` is the section of the settings, empty before there is one.
    """

    secrets: "Mapping[str, str]"
    options: "Mapping[str, str]" = {}
    base_url: str = ""
    account: str = ""


class SetupQuestion(Struct, frozen=True, kw_only=True):
    """Question about a chat network.

    ``name`` in upper case is a secret, in lower case an option of the network. ``prompt`` replaces the name as the
    text of the question. A ``public`` secret, for example an address, is shown while it is typed. ``problem`` returns
    why an answer can't be used, or an empty text; ``check`` tests it with the network and the answers given so far.
    A ``distinct`` number, for example a port, is different for each account. ``only_with`` names a question without
    whose answer this one isn't asked.
    """

    name: str
    hint: str
    prompt: str = ""
    public: bool = False
    required: bool = True
    default: str = ""
    distinct: bool = False
    only_with: str = ""
    problem: "Callable[[str], str] | None" = None
    check: "Callable[[NetworkTrial], Awaitable[ProbeResult]] | None" = None

    @property
    def is_secret(self) -> bool:
        """Return whether the answer is stored with the secrets."""
        return self.name.isupper()


class NetworkSetup(Struct, frozen=True, kw_only=True):
    """Everything that setup and doctor know about a chat network: the ``SETUP`` of an adapter's module ``setup``.

    ``questions`` are asked in order. ``next_step`` says what to do after them. ``doctor`` checks the stored answers
    beyond the checks of the questions; it needs no network.
    """

    title: str
    questions: tuple[SetupQuestion, ...] = ()
    next_step: str = ""
    doctor: "Callable[[NetworkTrial], tuple[str, ...]] | None" = None


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
    source: str


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

    def search(self) -> SearchProbes:
        """Probes of the web search engines."""

    def open_importer(self, agent: str, path: "Path | None") -> "AbstractContextManager[Importer]":
        """The import of another agent's home into this profile; without a path, of its usual home."""


class LoginState(Struct, frozen=True, kw_only=True):
    """A sign-in that exists or could: ``name`` is for commands, ``provider`` is what it gives access to.

    ``expires_at`` is when the short-lived token expires, which renews itself. ``problem`` says why a person has to
    sign in again.
    """

    name: str
    title: str
    provider: str
    condition: LoginCondition = "signed out"
    account: str = ""
    plan: str = ""
    expires_at: datetime | None = None
    file: str = ""
    problem: str = ""


class SignInSurface(Protocol):
    """The terminal of the person who signs in."""

    @property
    def has_browser(self) -> bool:
        """Return whether a browser can be opened on this computer."""

    def show(self, text: str) -> None:
        """Print a line."""

    def open_browser(self, url: str) -> bool:
        """Open an address in a browser, and return whether there is one."""

    def ask(self, prompt: str) -> str:
        """Return a line that the person types; empty at the end of the input."""


class RouteState(Struct, frozen=True, kw_only=True):
    """A route: its URL, signature scheme and reply target. ``problem`` keeps it from working."""

    name: str
    file: str
    url: str
    title: str = ""
    scheme: str = ""
    secret: str = ""
    deliver_to: str = ""
    problem: str = ""


class WebhookTrial(Struct, frozen=True, kw_only=True):
    """The trial of an event: ``text`` is what the agent would read, ``why`` the reason for ignoring it.

    ``missing`` are fields that a template names and the event lacks.
    """

    text: str = ""
    why: str = ""
    id: str = ""
    conversation: str = ""
    missing: tuple[str, ...] = ()


class WebhookInfo(Protocol):
    """The routes of a profile."""

    folder: str

    def routes(self) -> list[RouteState]:
        """Return all routes, including broken ones."""

    def try_out(self, name: str, body: bytes, headers: "Mapping[str, str]") -> WebhookTrial:
        """Return what an event would become on a route; raises `NotFound`, or `Refused` for a broken one."""
