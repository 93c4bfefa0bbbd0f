"""Who is who: one person with several ids, by the settings."""

from collections.abc import Collection, Mapping

from talaria.settings.chats import Person
from talaria.settings.model import Settings


def owner_on(settings: Settings, platform: str) -> str:
    """Return an id of the owner of this agent on a network; empty where none is named."""
    named = [
        one
        for who in settings.access.owners
        for one in (settings.people[who].ids if who in settings.people else (who,))
    ]
    return next((one.partition(":")[2] for one in named if one.startswith(f"{platform}:")), "")


class People:
    """Resolves the ids of people to those whom the settings name."""

    def __init__(self, people: Mapping[str, Person]) -> None:
        self._names = {one: name for name, person in people.items() for one in person.ids}

    def names(self, platform: str, ids: Collection[str]) -> frozenset[str]:
        """Return everything that somebody with these ids on a network is called: ``platform:id``, and by name."""
        full = {f"{platform}:{one}" for one in ids if one}
        return frozenset(full | {self._names[one] for one in full if one in self._names})

    def person(self, platform: str, ids: Collection[str]) -> str:
        """Return the one name under which somebody owns things: that of the settings, else their first id."""
        named = (self._names.get(f"{platform}:{one}") for one in ids)
        return next((name for name in named if name), f"{platform}:{next(iter(ids))}")
