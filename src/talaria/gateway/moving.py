"""A chat that gets another id takes its conversations along."""

import logging
from typing import get_args

from msgspec import structs

from talaria.contracts.platform import Incoming
from talaria.contracts.store import Transaction
from talaria.contracts.stores.bindings import Binding
from talaria.contracts.stores.sessions import SessionChanges
from talaria.core.addresses import ChatType
from talaria.sessions.channels import forget_channel, note_channel
from talaria.sessions.homes import read_home, write_home
from talaria.sessions.session_keys import belonging, build_key_stem

log = logging.getLogger(__name__)


def move_chat(tx: Transaction, moved: Incoming) -> int:
    """Bind where a chat is now what was bound where it was, and return how many conversations moved.

    Where somebody has begun another one there already, that one stays. Told a second time, this does nothing.
    """
    count = 0
    for kind in get_args(ChatType):
        before = build_key_stem(moved.address.platform, kind, moved.formerly)
        now = build_key_stem(moved.address.platform, kind, moved.address.chat_id)
        for binding in tx.bindings.under(before):
            rest = binding.key.removeprefix(before)
            if rest and not rest.startswith(":"):
                continue  # another chat, whose id begins like this one's
            tx.bindings.unbind(binding.key)
            if tx.bindings.get(now + rest) is None:
                _bind(tx, now + rest, binding, moved)
                count += 1
    _rename(tx, moved)
    log.warning(
        "%s: the chat %s (%s) has the id %s now; settings that name it by its id need that one",
        moved.address.platform,
        moved.formerly,
        moved.chat_name,
        moved.address.chat_id,
    )
    return count


def _bind(tx: Transaction, key: str, binding: Binding, moved: Incoming) -> None:
    address = structs.replace(binding.address, chat_id=moved.address.chat_id)
    tx.bindings.bind(key, binding.session_id, address)
    session = tx.sessions.get(binding.session_id)
    if session is not None and session.owner == belonging(binding.address, "", shared=True).owner:
        shared = belonging(address, "", shared=True)
        tx.sessions.update(session.id, SessionChanges(owner=shared.owner, audience=shared.audience))


def _rename(tx: Transaction, moved: Incoming) -> None:
    """Let the chat be found by its name, and be somebody's home, under its new id."""
    before = structs.replace(moved.address, chat_id=moved.formerly)
    if forget_channel(tx, before):
        note_channel(tx, moved.address, moved.chat_name, moved.at)
    home = read_home(tx, before.platform)
    if home is not None and home.address.chat_id == moved.formerly:
        now = structs.replace(home.address, chat_id=moved.address.chat_id)
        write_home(tx, structs.replace(home, address=now))
