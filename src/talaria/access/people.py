"""People with several network ids, as named in the settings."""

from collections.abc import Collection, Mapping

from talaria.settings.model import Settings
from talaria.settings.sections.chats import PersonSettings


def find_owner_id(settings: Settings, platform: str) -> str:
    """Return the owner's first id on a network, or an empty string if the settings name none."""
    owner_ids = [
        one
        for who in settings.access.owners
        for one in (settings.people[who].ids if who in settings.people else (who,))
    ]
    return next((one.partition(":")[2] for one in owner_ids if one.startswith(f"{platform}:")), "")


class People:
    """Lookup of people in the settings by their network ids."""

    def __init__(self, people: Mapping[str, PersonSettings]) -> None:
        self._names = {one: name for name, person in people.items() for one in person.ids}

    def names(self, platform: str, ids: Collection[str]) -> frozenset[str]:
        """Return all names of a user: ``platform:id`` for each id, plus the name in the settings."""
        full = {f"{platform}:{one}" for one in ids if one}
        return frozenset(full | {self._names[one] for one in full if one in self._names})

    def person(self, platform: str, ids: Collection[str]) -> str:
        """Return the name under which a user owns sessions: from the settings, else ``platform:`` and the first id."""
        owner_ids = (self._names.get(f"{platform}:{one}") for one in ids)
        return next((name for name in owner_ids if name), f"{platform}:{next(iter(ids))}")
