"""User ids of one person on a network, for example a phone number and its alias."""

from collections.abc import Collection

from msgspec import structs

from talaria.contracts.store import Transaction
from talaria.contracts.values import NamedValue
from talaria.core.addresses import Address

USER_IDS = NamedValue("user_ids", tuple[str, ...])


def list_user_ids(tx: Transaction, platform: str, user_id: str) -> tuple[str, ...]:
    """Return all known ids of the same person on a network; the first represents them all."""
    return USER_IDS.get(tx, _key(platform, user_id)) or (user_id,)


def link_user_ids(tx: Transaction, platform: str, known: str, other: str) -> None:
    """Record that two ids belong to one person, for example a phone number and WhatsApp's alias for it.

    The representative of ``known`` now represents both.
    """
    ids = list_user_ids(tx, platform, known)
    if other in ids:
        return
    ids = tuple(dict.fromkeys((*ids, *list_user_ids(tx, platform, other))))
    for one in ids:
        USER_IDS.write(tx, _key(platform, one), ids)


def canonical_address(address: Address, ids: Collection[str]) -> Address:
    """Return the address with the first of a person's ids, so that all their ids give the same address."""
    first = next(iter(ids))
    chat_id = first if address.chat_type == "private" and address.chat_id in ids else address.chat_id
    return structs.replace(address, chat_id=chat_id, user_id=first)


def _key(platform: str, user_id: str) -> str:
    return f"{platform}:{user_id}"
