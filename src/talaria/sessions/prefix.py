"""The fixed part of a conversation's requests, kept so that it stays the same, and why it ever changed."""

import msgspec
from msgspec import Struct

from talaria.contracts.store import Store, Transaction
from talaria.core.ids import SessionId

BREAK = "prefix_break"

_encode = msgspec.json.Encoder().encode


class Prefix(Struct, frozen=True):
    """What stands before the messages of every request: the instructions, and the tools by their digest."""

    instructions: str
    tools: str
    model: str


_decode = msgspec.json.Decoder(Prefix).decode


async def keep_prefix(store: Store, session_id: SessionId, wanted: Prefix) -> str:
    """Return the instructions to use: those of the conversation's first turn, whatever has changed since.

    Another model or other tools change the prefix anyway, so that then the new instructions are taken; that is
    recorded with its reason.
    """

    def work(tx: Transaction) -> str:
        entry = tx.state.get(f"prefix:{session_id}")
        kept = _decode(entry.value) if entry else None
        if kept is not None and (kept.tools, kept.model) == (wanted.tools, wanted.model):
            return kept.instructions
        if kept is not None:
            what = "the model" if kept.model != wanted.model else "the set of tools"
            record_break(tx, session_id, f"{what} was changed")
        tx.state.put(f"prefix:{session_id}", _encode(wanted).decode())
        return wanted.instructions

    return await store.write(work)


def record_break(tx: Transaction, session_id: SessionId, reason: str) -> None:
    """Record that the next request will not begin as the last one did, and why."""
    tx.events.append(f"session:{session_id}", [(BREAK, _encode({"reason": reason}).decode())])
