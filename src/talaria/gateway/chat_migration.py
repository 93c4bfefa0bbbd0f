"""Chat migration: sessions, directory entry and home chat follow a chat whose network id changed."""

import logging
from typing import get_args

from msgspec import structs

from talaria.contracts.platform import Incoming
from talaria.contracts.store import Transaction
from talaria.contracts.stores.bindings import Binding
from talaria.contracts.stores.sessions import SessionChanges
from talaria.core.addresses import ChatType
from talaria.sessions.chat_directory import forget_channel, read_home, record_channel, write_home
from talaria.sessions.keys import build_key_stem, resolve_ownership

log = logging.getLogger(__name__)


def migrate_chat(tx: Transaction, moved: Incoming) -> int:
    """Rebind the sessions of a chat to its new id, and return how many were moved.

    A session that was started under the new id stays bound there. Repeating the call changes nothing.
    """
    count = 0
    for kind in get_args(ChatType):
        before = build_key_stem(moved.address.platform, kind, moved.formerly)
        now = build_key_stem(moved.address.platform, kind, moved.address.chat_id)
        for binding in tx.bindings.under(before):
            rest = binding.key.removeprefix(before)
            if rest and not rest.startswith(":"):
                continue  # another chat, whose id starts with this id
            tx.bindings.unbind(binding.key)
            if tx.bindings.get(now + rest) is None:
                _rebind(tx, now + rest, binding, moved)
                count += 1
    _move_directory_entry(tx, moved)
    log.warning(
        "%s: the id of chat %s (%s) changed to %s; update settings that use the old id",
        moved.address.platform,
        moved.formerly,
        moved.chat_name,
        moved.address.chat_id,
    )
    return count


def _rebind(tx: Transaction, key: str, binding: Binding, moved: Incoming) -> None:
    address = structs.replace(binding.address, chat_id=moved.address.chat_id)
    tx.bindings.bind(key, binding.session_id, address)
    session = tx.sessions.get(binding.session_id)
    if session is not None and session.owner == resolve_ownership(binding.address, "", shared=True).owner:
        shared = resolve_ownership(address, "", shared=True)
        tx.sessions.update(session.id, SessionChanges(owner=shared.owner, audience=shared.audience))


def _move_directory_entry(tx: Transaction, moved: Incoming) -> None:
    """Move the chat's entry in the directory and its role as the home chat to the new id."""
    before = structs.replace(moved.address, chat_id=moved.formerly)
    if forget_channel(tx, before):
        record_channel(tx, moved.address, moved.chat_name, moved.at)
    home = read_home(tx, before.platform)
    if home is not None and home.address.chat_id == moved.formerly:
        now = structs.replace(home.address, chat_id=moved.address.chat_id)
        write_home(tx, structs.replace(home, address=now))
