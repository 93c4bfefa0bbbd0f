"""Which messages of a network stand for a reply: while it grows, and while its pieces go out one by one."""

import msgspec
from msgspec import Struct, structs

from talaria.contracts.store import Transaction
from talaria.core.addresses import Address
from talaria.core.ids import WorkerId

_encode = msgspec.json.Encoder().encode


class Shown(Struct, frozen=True, omit_defaults=True):
    """The messages of a reply so far, by their ids; an empty id was being posted and may be there or not.

    ``let_go`` were posted before them and stay as they are. ``done`` of ``messages`` have their final text.
    ``live`` is the worker that may still be changing them. ``maybe`` says how many more may be there behind them under
    their keys, left by a worker that died while it posted them.
    """

    address: Address
    messages: tuple[str, ...] = ()
    let_go: int = 0
    done: int = 0
    live: WorkerId = WorkerId("")
    maybe: int = 0

    def at(self, place: int) -> str | None:
        """Return the id of the message at a place; empty where one may be there, ``None`` where none is."""
        if place < len(self.messages):
            return self.messages[place]
        return "" if place < len(self.messages) + self.maybe else None

    def key(self, reply: str, place: int) -> str:
        """Return the key on the network of the message at a place, for the reply of this key."""
        return f"{reply}:{self.let_go + place + 1}"

    def at_address(self, address: Address) -> "Shown":
        """Return what stands for the reply there: nothing, where its conversation has moved since, but other keys."""
        if address == self.address:
            return self
        posted = self.let_go + len(self.messages) + self.maybe
        return structs.replace(Shown(address), let_go=posted)


_decoder = msgspec.json.Decoder(Shown)


def read_shown(tx: Transaction, reply: str) -> Shown | None:
    """Return what stands for a reply, if anything does; ``reply`` is its key in the outbox."""
    entry = tx.state.get(f"preview:{reply}")
    return _decoder.decode(entry.value) if entry else None


def keep_shown(tx: Transaction, reply: str, shown: Shown) -> None:
    """Record what stands for a reply."""
    tx.state.put(f"preview:{reply}", _encode(shown).decode())


def forget_shown(tx: Transaction, reply: str) -> None:
    """Forget it: the reply is there."""
    tx.state.delete(f"preview:{reply}")
