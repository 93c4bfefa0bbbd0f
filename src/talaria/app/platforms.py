"""Which chat networks there are, and how each is opened: ours by name, others by entry points."""

from functools import cache
from typing import TYPE_CHECKING, Protocol, cast

from msgspec import Struct

from talaria.app.subcommands import load
from talaria.contracts.platform import KnownPlatforms, Platform, PlatformAccount
from talaria.core.errors import NotFound, Refused
from talaria.settings.model import Settings
from talaria.settings.secrets import Secrets

if TYPE_CHECKING:  # loaded where a network of others is named, for that takes long
    from importlib.metadata import EntryPoints

_GROUP = "talaria.platforms"


class Known(Struct, frozen=True):
    """A network of ours: the secrets that it cannot do without, one of each group, and the extra with its library.

    One without such secrets is served where the settings name it. ``command`` is how slash commands are typed there.
    """

    secrets: tuple[tuple[str, ...], ...] = ()
    extra: str = ""
    command: str = "/{name}"

    def is_set_up(self, secrets: Secrets) -> bool:
        """Tell whether it has its secrets."""
        return all(any(map(secrets.get, group)) for group in self.secrets)


KNOWN = {
    "telegram": Known((("TELEGRAM_BOT_TOKEN",),), "telegram"),
    "discord": Known((("DISCORD_BOT_TOKEN",),), "discord"),
    "matrix": Known((("MATRIX_HOMESERVER",), ("MATRIX_ACCESS_TOKEN", "MATRIX_PASSWORD")), "matrix"),
    "slack": Known((("SLACK_BOT_TOKEN",), ("SLACK_APP_TOKEN",)), "slack", "/talaria {name}"),
    "webhook": Known(),
}


class _Opens(Protocol):
    def __call__(self, account: PlatformAccount) -> Platform: ...


def enabled_platforms(settings: Settings, secrets: Secrets) -> list[str]:
    """Return the names of those to serve: ours that have their secrets, others that the settings name."""
    ours = [name for name, known in KNOWN.items() if known.secrets and known.is_set_up(secrets)]
    named = [name for name in settings.platforms if (not KNOWN[name].secrets if name in KNOWN else name in _others())]
    off = {name for name, network in settings.platforms.items() if not network.enabled}
    return [name for name in (*ours, *named) if name not in off]


def known_platforms(settings: Settings, secrets: Secrets) -> KnownPlatforms:
    """Return the networks on which somebody can be reached, and whether each is set up."""
    ours = {name: known.is_set_up(secrets) for name, known in KNOWN.items() if known.secrets}
    configured = ours | dict.fromkeys(enabled_platforms(settings, secrets), True)
    return KnownPlatforms(configured, {name: known.command for name, known in KNOWN.items()})


def open_platform(account: PlatformAccount) -> Platform:
    """Open one, or raise what is missing."""
    known = KNOWN.get(account.name)
    if known is None:
        return _other(account.name)(account)
    try:
        opening = load(f"talaria.platforms.{account.name}.opening")
    except ModuleNotFoundError as error:
        command = load("talaria.core.extras").install_command(known.extra)
        raise Refused(f"{account.name} needs a library that is not installed. `{command}` adds it.") from error
    return cast("_Opens", opening.open_platform)(account)


@cache
def _others() -> frozenset[str]:
    # Looking through all that is installed takes milliseconds, and every conversation asks for it.
    return frozenset(point.name for point in _entry_points())


def _other(name: str) -> _Opens:
    for point in _entry_points(name=name):
        return cast("_Opens", point.load())
    raise NotFound(f"There is no adapter for a network `{name}`.")


def _entry_points(**wanted: str) -> "EntryPoints":
    found: EntryPoints = load("importlib.metadata").entry_points(group=_GROUP, **wanted)
    return found
