"""Chat networks and their adapters: built-in ones by name, others by entry points."""

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Protocol, cast

from msgspec import Struct

from talaria.contracts.platform import KnownPlatforms, Platform, PlatformAccount
from talaria.contracts.webhooks import WebhookInfo
from talaria.core.addresses import WEB
from talaria.core.errors import NotFound, Refused
from talaria.core.lazy import load_module
from talaria.settings.model import Settings
from talaria.settings.profiles import Profile
from talaria.settings.secrets import Secrets
from talaria.settings.sections.chats import ChatNetworkSettings

if TYPE_CHECKING:  # imported lazily: importing importlib.metadata is slow
    from importlib.metadata import EntryPoints


_ENTRY_POINT_GROUP = "talaria.platforms"


class BuiltInPlatform(Struct, frozen=True):
    """Built-in network: its adapter module, required secrets and optional dependencies.

    ``module`` has ``open_platform(account) -> Platform`` and is imported when the network is opened. ``secrets`` are
    groups, of which one secret each must be set; a network without any is served if the settings name it. ``extra`` is
    the package extra with its library. ``command`` is the form in which slash commands are typed.
    """

    module: str
    secrets: tuple[tuple[str, ...], ...] = ()
    extra: str = ""
    command: str = "/{name}"

    def is_set_up(self, secrets: Secrets) -> bool:
        """Return whether the required secrets are set."""
        return all(any(map(secrets.get, group)) for group in self.secrets)


BUILT_IN_PLATFORMS = {
    "telegram": BuiltInPlatform("talaria.platforms.telegram.adapter", (("TELEGRAM_BOT_TOKEN",),), "telegram"),
    "discord": BuiltInPlatform("talaria.platforms.discord.adapter", (("DISCORD_BOT_TOKEN",),), "discord"),
    "matrix": BuiltInPlatform(
        "talaria.platforms.matrix.adapter",
        (("MATRIX_HOMESERVER",), ("MATRIX_ACCESS_TOKEN", "MATRIX_PASSWORD")),
        "matrix",
    ),
    "slack": BuiltInPlatform(
        "talaria.platforms.slack.adapter", (("SLACK_BOT_TOKEN",), ("SLACK_APP_TOKEN",)), "slack", "/talaria {name}"
    ),
    "ntfy": BuiltInPlatform("talaria.platforms.ntfy.adapter", (("NTFY_TOPIC",),)),
    "irc": BuiltInPlatform("talaria.platforms.irc.adapter", (("IRC_SERVER",),), command="!{name}"),
    "mattermost": BuiltInPlatform(
        "talaria.platforms.mattermost.adapter", (("MATTERMOST_URL",), ("MATTERMOST_TOKEN",)), "mattermost", "!{name}"
    ),
    "webhook": BuiltInPlatform("talaria.platforms.webhook.adapter"),
}


class _OpenPlatform(Protocol):
    def __call__(self, account: PlatformAccount) -> Platform: ...


def enabled_platforms(settings: Settings, secrets: Secrets) -> list[str]:
    """Return the networks to serve: built-in ones with their secrets, others that the settings name."""
    built_in = [name for name, known in BUILT_IN_PLATFORMS.items() if known.secrets and known.is_set_up(secrets)]
    named = [
        name
        for name in settings.platforms
        if (not BUILT_IN_PLATFORMS[name].secrets if name in BUILT_IN_PLATFORMS else name in _list_plugins())
    ]
    off = {name for name, network in settings.platforms.items() if not network.enabled}
    return [name for name in (*built_in, *named) if name not in off]


def reachable_platforms(settings: Settings, secrets: Secrets) -> list[str]:
    """Return everything that messages can be sent to: the served networks, then the web app."""
    return [*enabled_platforms(settings, secrets), *([WEB] if settings.api.web else [])]


def known_platforms(settings: Settings, secrets: Secrets) -> KnownPlatforms:
    """Return the networks and the web app, and whether each is configured."""
    built_in = {name: known.is_set_up(secrets) for name, known in BUILT_IN_PLATFORMS.items() if known.secrets}
    configured = built_in | dict.fromkeys(enabled_platforms(settings, secrets), True) | {WEB: settings.api.web}
    return KnownPlatforms(configured, {name: known.command for name, known in BUILT_IN_PLATFORMS.items()})


def open_platform(account: PlatformAccount) -> Platform:
    """Open a network; raises `Refused` if its library is missing, `NotFound` if it has no adapter."""
    known = BUILT_IN_PLATFORMS.get(account.name)
    if known is None:
        return _load_plugin(account.name)(account)
    try:
        opening = load_module(known.module)
    except ModuleNotFoundError as error:
        from talaria.core.extras import install_command  # noqa: PLC0415 (loaded when a library is missing)

        command = install_command(known.extra)
        raise Refused(f"{account.name} needs a library that isn't installed. `{command}` installs it.") from error
    return cast("_OpenPlatform", opening.open_platform)(account)


@cache
def _list_plugins() -> frozenset[str]:
    # Scanning the installed packages takes milliseconds, and every session needs the result.
    return frozenset(point.name for point in _entry_points())


def _load_plugin(name: str) -> _OpenPlatform:
    for point in _entry_points().select(name=name):
        return cast("_OpenPlatform", point.load())
    raise NotFound(f"There is no adapter for the network `{name}`.")


def _entry_points() -> "EntryPoints":
    from importlib.metadata import entry_points  # noqa: PLC0415 (loaded when another network is named)

    return entry_points(group=_ENTRY_POINT_GROUP)


class ProfileNetworks:
    """Networks of a profile, for subcommands."""

    def __init__(self, settings: Settings, secrets: Secrets, profile: Profile) -> None:
        self._settings = settings
        self._secrets = secrets
        self._profile = profile

    def names(self) -> list[str]:
        """Return the names of the configured networks."""
        return enabled_platforms(self._settings, self._secrets)

    def targets(self) -> list[str]:
        """Return everything that messages can be sent to: the configured networks, then the web app."""
        return reachable_platforms(self._settings, self._secrets)

    def webhooks(self) -> WebhookInfo:
        """Return the webhook routes; raises `Refused` if an option is invalid."""
        from talaria.app.gateway.webhooks import ProfileWebhooks  # noqa: PLC0415 (loaded for webhooks)

        network = self._settings.platforms.get("webhook", ChatNetworkSettings())
        return ProfileWebhooks(network, self._secrets, self._profile)

    def slack_manifest(self, *, assistant: bool) -> Mapping[str, object]:
        """Return the manifest of a Slack app for this agent."""
        from talaria.commands.command import select_usable_commands  # noqa: PLC0415 (loaded for a manifest)
        from talaria.commands.registry import REGISTRY  # noqa: PLC0415 (loaded for a manifest)
        from talaria.platforms.slack.manifest import make_manifest  # noqa: PLC0415 (loaded for a manifest)

        network = self._settings.platforms.get("slack", ChatNetworkSettings())
        commands = [(command.name, command.help) for command in select_usable_commands(REGISTRY, terminal=False)]
        word = network.options.get("command", "talaria").removeprefix("/")
        return make_manifest(commands, command=word, assistant=assistant)
