"""Chat networks and their adapters: built-in ones by name, others by entry points."""

import logging
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Protocol, cast

from talaria.contracts.platform import KnownPlatforms, Platform, PlatformAccount
from talaria.contracts.setup import WebhookInfo
from talaria.core.addresses import WEB
from talaria.core.errors import NotFound, Refused
from talaria.core.lazy import load_module
from talaria.settings.model import Settings
from talaria.settings.profiles import Profile
from talaria.settings.secrets import Secrets
from talaria.settings.sections.chats import BUILT_IN_PLATFORMS, ChatAccount, ChatNetworkSettings

if TYPE_CHECKING:  # imported lazily: importing importlib.metadata is slow
    from importlib.metadata import EntryPoints

    from talaria.contracts.setup import NetworkSetup, NetworkTrial, ProbeResult, SetupQuestion

log = logging.getLogger(__name__)

_ENTRY_POINT_GROUP = "talaria.platforms"
_SETUP_GROUP = "talaria.platform_setups"


class _OpenPlatform(Protocol):
    def __call__(self, account: PlatformAccount) -> Platform: ...


def find_network(settings: Settings, name: str) -> str:
    """Return the network of an account: by the settings, else the account is named after it."""
    account = settings.platforms.get(name)
    return account.network or name if account is not None else name


def account_secret(settings: Settings, name: str, secret: str) -> str:
    """Return the name of an account's secret."""
    return ChatAccount(name, find_network(settings, name)).secret_name(secret)


def _is_account_set_up(settings: Settings, secrets: Secrets, name: str) -> bool:
    """Return whether an account that the settings name can be opened."""
    account = ChatAccount(name, find_network(settings, name))
    known = BUILT_IN_PLATFORMS.get(account.network)
    if known is None:
        return account.network in _list_plugins()
    if name in BUILT_IN_PLATFORMS:
        return not known.secrets
    return account.has_secrets(secrets.get)


def list_enabled_platforms(settings: Settings, secrets: Secrets) -> list[str]:
    """Return the accounts to serve: built-in networks with their secrets, others that the settings name."""
    built_in = [name for name, known in BUILT_IN_PLATFORMS.items() if known.secrets and _has_secrets(name, secrets)]
    named = [name for name in settings.platforms if _is_account_set_up(settings, secrets, name)]
    off = {name for name, network in settings.platforms.items() if not network.enabled}
    return [name for name in (*built_in, *named) if name not in off]


def list_reachable_platforms(settings: Settings, secrets: Secrets) -> list[str]:
    """Return everything that messages can be sent to: the served networks, then the web app."""
    return [*list_enabled_platforms(settings, secrets), *([WEB] if settings.api.web else [])]


def build_known_platforms(settings: Settings, secrets: Secrets) -> KnownPlatforms:
    """Return the networks and the web app, and whether each is configured."""
    built_in = {name: _has_secrets(name, secrets) for name, known in BUILT_IN_PLATFORMS.items() if known.secrets}
    configured = built_in | dict.fromkeys(list_enabled_platforms(settings, secrets), True) | {WEB: settings.api.web}
    forms = {name: known.command for name, known in BUILT_IN_PLATFORMS.items()}
    forms |= {name: forms[one.network] for name, one in settings.platforms.items() if one.network in forms}
    return KnownPlatforms(configured, forms)


def open_platform(account: PlatformAccount) -> Platform:
    """Open a network; raises `Refused` if its library is missing, `NotFound` if it has no adapter."""
    network = account.network or account.name
    known = BUILT_IN_PLATFORMS.get(network)
    if known is None:
        return _load_plugin(network)(account)
    try:
        opening = load_module(f"talaria.platforms.{network}.adapter")
    except ModuleNotFoundError as error:
        from talaria.core.installation import install_command  # noqa: PLC0415 (loaded when a library is missing)

        command = install_command(known.extra)
        raise Refused(f"{account.name} needs a library that isn't installed. `{command}` installs it.") from error
    return cast("_OpenPlatform", opening.open_platform)(account)


def load_network_setups() -> "dict[str, NetworkSetup]":
    """Load what setup and doctor know about each network: built-in ones, and other packages' that declare it."""
    found = {name: load_module(f"talaria.platforms.{name}.setup").SETUP for name in BUILT_IN_PLATFORMS}
    for point in _list_entry_points(_SETUP_GROUP):
        try:
            found.setdefault(point.name, point.load())
        except (ImportError, AttributeError) as error:
            log.warning("The setup of the network %s can't be loaded: %s", point.name, error)
    return found


def _has_secrets(name: str, secrets: Secrets) -> bool:
    return all(any(map(secrets.get, group)) for group in BUILT_IN_PLATFORMS[name].secrets)


@cache
def _list_plugins() -> frozenset[str]:
    # Scanning the installed packages takes milliseconds, and every session needs the result.
    return frozenset(point.name for point in _list_entry_points(_ENTRY_POINT_GROUP))


def _load_plugin(name: str) -> _OpenPlatform:
    for point in _list_entry_points(_ENTRY_POINT_GROUP).select(name=name):
        return cast("_OpenPlatform", point.load())
    raise NotFound(f"There is no adapter for the network `{name}`.")


def _list_entry_points(group: str) -> "EntryPoints":
    from importlib.metadata import entry_points  # noqa: PLC0415 (loaded when another network is named)

    return entry_points(group=group)


class ProfileNetworks:
    """Networks of a profile, for subcommands."""

    def __init__(self, settings: Settings, secrets: Secrets, profile: Profile) -> None:
        self._settings = settings
        self._secrets = secrets
        self._profile = profile

    def names(self) -> list[str]:
        """Return the names of the configured networks."""
        return list_enabled_platforms(self._settings, self._secrets)

    def targets(self) -> list[str]:
        """Return everything that messages can be sent to: the configured networks, then the web app."""
        return list_reachable_platforms(self._settings, self._secrets)

    def setups(self) -> "Mapping[str, NetworkSetup]":
        """Load the setup of all networks."""
        return load_network_setups()

    def try_answer(self, question: "SetupQuestion", trial: "NetworkTrial") -> "ProbeResult":
        """Test an answer of the setup with its network; a question without a check accepts every answer."""
        import asyncio  # noqa: PLC0415 (loaded when an answer is tested)

        from talaria.contracts.setup import ProbeResult  # noqa: PLC0415 (loaded when an answer is tested)

        async def check() -> ProbeResult:
            return await question.check(trial) if question.check else ProbeResult("right", "It isn't tested.")

        return asyncio.run(check())

    def webhooks(self) -> WebhookInfo:
        """Return the webhook routes; raises `Refused` if an option is invalid."""
        from talaria.app.gateway.webhooks import ProfileWebhooks  # noqa: PLC0415 (loaded for webhooks)

        network = self._settings.platforms.get("webhook", ChatNetworkSettings())
        return ProfileWebhooks(network, self._secrets, self._profile)

    def slack_manifest(self, *, assistant: bool) -> Mapping[str, object]:
        """Return the manifest of a Slack app for this agent."""
        from talaria.commands.command import select_usable_commands  # noqa: PLC0415 (loaded for a manifest)
        from talaria.commands.registry import REGISTRY  # noqa: PLC0415 (loaded for a manifest)
        from talaria.platforms.slack.setup import make_manifest  # noqa: PLC0415 (loaded for a manifest)

        network = self._settings.platforms.get("slack", ChatNetworkSettings())
        commands = [(command.name, command.help) for command in select_usable_commands(REGISTRY, terminal=False)]
        word = network.options.get("command", "talaria").removeprefix("/")
        return make_manifest(commands, command=word, assistant=assistant)
