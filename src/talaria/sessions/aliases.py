"""Several ids of one person on a network, such as a phone number and what is shown in its place."""

from collections.abc import Collection

import msgspec
from msgspec import structs

from talaria.contracts.store import Transaction
from talaria.core.addresses import Address

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(tuple[str, ...]).decode


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
