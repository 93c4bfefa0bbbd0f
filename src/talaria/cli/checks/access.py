"""A check of who may speak in chats."""

from collections.abc import Iterator

from talaria.cli.checks.findings import Finding, fault, ok, warning
from talaria.cli.services import Services
from talaria.core.errors import Refused
from talaria.settings.doors import nameless, open_doors
from talaria.settings.errors import SettingsInvalid


def look_at_access(services: Services) -> Iterator[Finding]:
    """Report doors that stand open to strangers, and names that are nobody's."""
    try:
        settings = services.settings()
    except SettingsInvalid:
        yield warning("Not looked at, since the settings have faults.", "Repair the settings first.")
        return
    unknown = list(nameless(settings))
    for sentence in unknown:
        yield fault(sentence, "`talaria config edit` opens the file.")
    opened = list(open_doors(settings))
    for sentence in opened:
        yield warning(sentence, "Switch it off and approve people one by one: `talaria pairing list`.")
    yield from _keyless(services)
    yield from _routes(services)
    if not unknown and not opened:
        yield ok("Only people you approve can talk to the agent in chats.")


def _keyless(services: Services) -> Iterator[Finding]:
    """Report that programs on this machine need no API key."""
    if services.settings().api.keyless:
        found = "Programs on this machine may chat with the agent over the API without a key (`api.keyless`)."
        yield warning(found, "`talaria config unset api.keyless` makes every request need one.")


def _routes(services: Services) -> Iterator[Finding]:
    """Report routes of webhooks on which nobody can be heard."""
    network = services.settings().platforms.get("webhook")
    if network is None or not network.enabled:
        return
    try:
        routes = services.networks().webhooks().routes()
    except Refused as error:
        yield fault(str(error), "`talaria config edit` opens the file.")
        return
    for one in routes:
        if one.problem:
            yield fault(f"The webhook {one.name} cannot be served: {one.problem}", "`talaria webhook list` shows all.")
