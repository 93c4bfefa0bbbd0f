"""Loading of a session's trace: the requested turns and the breaks of the prompt prefix."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from msgspec import Struct

from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import Session
from talaria.contracts.stores.turns import Turn
from talaria.core.errors import Ambiguous, NotFound
from talaria.core.messages import Usage
from talaria.observability.prefix_breaks import PaidCall, PrefixBreak, price_breaks, read_breaks
from talaria.observability.trace import TurnTrace, read_turn, sum_usage

_LONGEST_NUMBER = 7


class NumberedTurn(Struct, frozen=True):
    """Turn with its number in the session, and the prefix breaks that its calls paid for."""

    number: int
    trace: TurnTrace
    breaks: tuple[PrefixBreak, ...] = ()


class SessionTrace(Struct, frozen=True, kw_only=True):
    """Requested turns of a session; ``breaks`` has all breaks, ``earlier`` counts omitted turns."""

    session: Session
    turns: tuple[NumberedTurn, ...]
    breaks: tuple[PrefixBreak, ...]
    earlier: int = 0

    @property
    def usage(self) -> Usage:
        """Total usage of the turns."""
        return sum_usage(turn.trace.usage for turn in self.turns)


def read_trace(store: Transaction, session: Session, now: datetime, *, turn: str | None, last: int) -> SessionTrace:
    """Read the named turn, or the last ones; raises `NotFound` or `Ambiguous`."""
    turns = list(enumerate(store.turns.find(session.id), 1))
    chosen = turns[-last:] if turn is None else [_find_turn(turns, turn)]
    found = read_breaks(store, session.id)
    breaks = price_breaks(found, _list_calls(store, turns, now, since=found[0][0])) if found else []
    return SessionTrace(
        session=session,
        turns=tuple(_build_turn(store, number, one, now, breaks) for number, one in chosen),
        breaks=tuple(breaks),
        earlier=len(turns) - len(chosen) if turn is None else 0,
    )


def _build_turn(
    store: Transaction, number: int, turn: Turn, now: datetime, breaks: Sequence[PrefixBreak]
) -> NumberedTurn:
    own = tuple(one for one in breaks if one.turn == number)
    return NumberedTurn(number, read_turn(turn, store.turns.steps(turn.id), now), own)


def _list_calls(
    store: Transaction, turns: Sequence[tuple[int, Turn]], now: datetime, *, since: datetime
) -> Iterator[PaidCall]:
    """Yield the model calls of turns that had not ended before ``since``."""
    for number, turn in turns:
        if turn.ended_at is None or turn.ended_at >= since:
            for span in read_turn(turn, store.turns.steps(turn.id), now).models():
                yield PaidCall(number, span)


def _find_turn(turns: Sequence[tuple[int, Turn]], name: str) -> tuple[int, Turn]:
    query = name.strip()
    if query.isascii() and query.isdecimal() and len(query) <= _LONGEST_NUMBER:
        found = [entry for entry in turns if entry[0] == int(query)]
    else:
        found = [entry for entry in turns if query and entry[1].id.startswith(query)]
    if not found:
        raise NotFound(f"There is no turn `{query}`; this session has turns 1 to {len(turns)}.")
    if len(found) > 1:
        raise Ambiguous(f"`{query}` matches {len(found)} turns. Give more of the id, or the number.")
    return found[0]
