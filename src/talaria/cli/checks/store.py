"""Check of the store: that it opens, that its schema is current, and that nothing in it is damaged."""

from collections.abc import Iterator

from talaria.cli.checks.findings import Finding, fault, ok, warning
from talaria.cli.services import Services
from talaria.core.errors import StoreCorrupt, TalariaError
from talaria.settings.checks import mask_password
from talaria.settings.errors import SettingsInvalid

_RECOVER = "`talaria doctor --fix` keeps the damaged file aside and recovers what can be read."


def look_at_store(services: Services) -> Iterator[Finding]:
    """Report every damage, or what kept the store from being opened."""
    try:
        place = _place(services)
        damage = services.store_care().check()
        if not place and not damage:
            yield ok(f"{services.profile.database_file} does not exist yet: it is made with the first session.")
            return
    except SettingsInvalid:
        yield warning("The store was not looked at, since the settings have faults.", "Repair the settings first.")
    except StoreCorrupt as error:
        yield _damaged([str(error)], services)
    except TalariaError as error:
        yield fault(str(error) or error.public)
    else:
        yield _damaged(damage, services) if damage else ok(f"{place} opens, is up to date and not damaged.")


def _place(services: Services) -> str:
    """Return where the store is; empty where it is a file that nobody has needed yet."""
    url, file = services.settings().store.url, services.profile.database_file
    return mask_password(url) or (str(file) if file.exists() else "")


def _damaged(damage: list[str], services: Services) -> Finding:
    return fault(" ".join(["The store is damaged.", *damage]), _RECOVER, services.store_care().recover)
