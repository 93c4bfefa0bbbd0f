"""Who is who: one person with several ids, by the settings and by what networks have told us."""

from collections.abc import Collection, Mapping

import msgspec
from msgspec import structs

from talaria.contracts.store import Transaction
from talaria.core.addresses import Address
from talaria.settings.chats import Person

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(tuple[str, ...]).decode


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


def known_ids(tx: Transaction, platform: str, user_id: str) -> tuple[str, ...]:
    """Return every id on a network that was learned to be the same person's; the first stands for them all."""
    entry = tx.state.get(_key(platform, user_id))
    return _decode(entry.value) if entry else (user_id,)


def learn_same(tx: Transaction, platform: str, known: str, other: str) -> None:
    """Keep that two ids are one person's, such as a phone number and what WhatsApp shows in its place.

    What ``known`` stood for until now goes on to stand for both.
    """
    ids = known_ids(tx, platform, known)
    if other in ids:
        return
    ids = tuple(dict.fromkeys((*ids, *known_ids(tx, platform, other))))
    for one in ids:
        tx.state.put(_key(platform, one), _encode(ids).decode())


def same_place(place: Address, ids: Collection[str]) -> Address:
    """Return the place under the first of a person's ids, so that it is one place whichever they write from."""
    first = next(iter(ids))
    chat_id = first if place.chat_type == "private" and place.chat_id in ids else place.chat_id
    return structs.replace(place, chat_id=chat_id, user_id=first)


def _key(platform: str, user_id: str) -> str:
    return f"identity:{platform}:{user_id}"
