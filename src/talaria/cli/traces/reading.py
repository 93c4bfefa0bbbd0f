"""The trace of a session: the turns that were asked for, and where the prompt prefix broke."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from msgspec import Struct

from talaria.cli.traces.breaks import Break, PaidCall, price_breaks, read_breaks
from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import Session
from talaria.contracts.stores.turns import Turn
from talaria.core.errors import Ambiguous, NotFound
from talaria.core.messages import Usage
from talaria.sessions.trace import TurnTrace, read_turn, total

_LONGEST_NUMBER = 7


class NumberedTurn(Struct, frozen=True):
    """A turn, the how-manieth of its session it is, and the breaks that its calls paid for."""

    number: int
    trace: TurnTrace
    breaks: tuple[Break, ...] = ()


class SessionTrace(Struct, frozen=True, kw_only=True):
    """What was asked for of a session; ``breaks`` are all there are, ``earlier`` is how many turns were left out."""

    session: Session
    turns: tuple[NumberedTurn, ...]
    breaks: tuple[Break, ...]
    earlier: int = 0

    @property
    def usage(self) -> Usage:
        """What the turns used together."""
        return total(turn.trace.usage for turn in self.turns)


def read_trace(store: Transaction, session: Session, now: datetime, *, turn: str | None, last: int) -> SessionTrace:
    """Read the turn that is named, or the last ones; raises `NotFound` or `Ambiguous`."""
    turns = list(enumerate(store.turns.find(session.id), 1))
    chosen = turns[-last:] if turn is None else [_named(turns, turn)]
    found = read_breaks(store, session.id)
    breaks = price_breaks(found, _calls(store, turns, now, since=found[0][0])) if found else []
    return SessionTrace(
        session=session,
        turns=tuple(_numbered(store, number, one, now, breaks) for number, one in chosen),
        breaks=tuple(breaks),
        earlier=len(turns) - len(chosen) if turn is None else 0,
    )


def _numbered(store: Transaction, number: int, turn: Turn, now: datetime, breaks: Sequence[Break]) -> NumberedTurn:
    own = tuple(one for one in breaks if one.turn == number)
    return NumberedTurn(number, read_turn(turn, store.turns.steps(turn.id), now), own)


def _calls(
    store: Transaction, turns: Sequence[tuple[int, Turn]], now: datetime, *, since: datetime
) -> Iterator[PaidCall]:
    """Yield the model calls of the turns that were not over before ``since``."""
    for number, turn in turns:
        if turn.ended_at is None or turn.ended_at >= since:
            for span in read_turn(turn, store.turns.steps(turn.id), now).models():
                yield PaidCall(number, span)


def _named(turns: Sequence[tuple[int, Turn]], name: str) -> tuple[int, Turn]:
    wish = name.strip()
    if wish.isascii() and wish.isdecimal() and len(wish) <= _LONGEST_NUMBER:
        found = [entry for entry in turns if entry[0] == int(wish)]
    else:
        found = [entry for entry in turns if wish and entry[1].id.startswith(wish)]
    if not found:
        raise NotFound(f"There is no turn `{wish}`; this session has {len(turns)}, numbered from 1.")
    if len(found) > 1:
        raise Ambiguous(f"`{wish}` fits {len(found)} turns; give more of the id, or the number.")
    return found[0]
