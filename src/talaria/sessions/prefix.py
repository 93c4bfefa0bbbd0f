"""The fixed part of a conversation's requests, kept so that it stays the same, and why it ever changed."""

from collections.abc import Callable

import msgspec
from msgspec import Struct, structs

from talaria.contracts.store import Transaction
from talaria.core.ids import SessionId

BREAK = "prefix_break"

_encode = msgspec.json.Encoder().encode


class Prefix(Struct, frozen=True):
    """What stands before the messages of every request.

    ``tools`` is a digest of them, ``manner`` how the model is asked: effort, temperature, length. ``audience`` is
    before whom: what is remembered of one place is not told in another.
    """

    instructions: str
    tools: str
    model: str
    manner: str = ""
    audience: str = ""


_decode = msgspec.json.Decoder(Prefix).decode


def read_prefix(tx: Transaction, session_id: SessionId) -> Prefix | None:
    """Return the prefix that the last turn of a conversation used, if there was one."""
    entry = tx.state.get(f"prefix:{session_id}")
    return _decode(entry.value) if entry else None


def prefix_to_use(kept: Prefix | None, wanted: Prefix, instructions: Callable[[], str]) -> Prefix:
    """Return the prefix of the conversation's first turn, whatever the instructions would be today.

    Another model, other tools or another manner change the prefix anyway, so that then the wanted one is taken, with
    instructions that are made now.
    """
    if kept is not None and not _difference(kept, wanted):
        return kept
    return structs.replace(wanted, instructions=instructions())


def keep_prefix(tx: Transaction, session_id: SessionId, used: Prefix) -> None:
    """Keep the prefix that a turn is about to use, and record why it is another one than before, if it is."""
    key, value = f"prefix:{session_id}", _encode(used).decode()
    if tx.state.replace(key, value, version=0):
        return
    kept = read_prefix(tx, session_id)
    if kept is not None and kept != used:
        record_break(tx, session_id, f"{_difference(kept, used) or 'what the agent is told'} was changed")
        tx.state.put(key, value)


def _difference(kept: Prefix, wanted: Prefix) -> str:
    """Return what makes a new prefix necessary; empty where the kept one will do."""
    if kept.model != wanted.model:
        return "the model"
    if kept.tools != wanted.tools:
        return "the set of tools"
    if kept.audience != wanted.audience:
        return "who reads along"
    return "how the model is asked" if kept.manner != wanted.manner else ""


def record_break(tx: Transaction, session_id: SessionId, reason: str) -> None:
    """Record that the next request will not begin as the last one did, and why."""
    tx.events.append(f"session:{session_id}", [(BREAK, _encode({"reason": reason}).decode())])
