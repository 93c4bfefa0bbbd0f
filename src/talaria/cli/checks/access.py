"""A check of who may speak in chats."""

from collections.abc import Iterator

from talaria.cli.checks.findings import Finding, fault, ok, warning
from talaria.cli.services import Services
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
        yield warning(sentence, "Switch it off, and let people in one by one: `talaria pairing list`.")
    if not unknown and not opened:
        yield ok("In chats, nobody speaks to the agent but those whom you let in.")
