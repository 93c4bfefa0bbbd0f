"""Whose turn it is: the mark in the store that joins a turn to its run, and what of it was told before."""

from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Struct, structs

from talaria.api.runs.asked import tell
from talaria.api.runs.events import RunEvent, TurnResumed, TurnStarted, stream_of, unpacked
from talaria.api.runs.telling import Telling
from talaria.contracts.store import Transaction
from talaria.contracts.stores.responses import ApiRun
from talaria.contracts.stores.turns import Step
from talaria.core.ids import SessionId, TurnId
from talaria.core.messages import Message, Text, ToolResult
from talaria.sessions.turn_log import MODEL, CallRecord

_PAGE = 1000
_encode = msgspec.json.Encoder().encode
_decode_call = msgspec.json.Decoder(CallRecord).decode
_decode_result = msgspec.json.Decoder(ToolResult).decode


class Mark(Struct, frozen=True):
    """That a turn belongs to a run.

    ``record`` is who tells of it: with each one who goes on with a turn that was cut off it is another, and behind the
    end of the turn it is nobody. Events of the turn stand behind number ``first`` of the run's stream, those told by
    this record behind ``base``.
    """

    turn_id: TurnId
    run_id: str
    record: str
    first: int
    base: int


class Cut(Struct, frozen=True):
    """Where a turn was cut off: behind which of its steps, and behind which message of the conversation."""

    turn_id: TurnId
    step: int = 2**62
    seq: int = 2**62


class Place(Struct, frozen=True):
    """Where a record tells: behind ``base`` in the stream of a run, and behind what was ``told`` of the turn before."""

    run_id: str
    base: int
    told: tuple[RunEvent, ...] = ()
    resumed: bool = False


_decode = msgspec.json.Decoder(Mark).decode


def read_mark(tx: Transaction, session_id: SessionId) -> Mark | None:
    """Return the mark of the last turn of a conversation that belongs to a run."""
    entry = tx.state.get(_key(session_id))
    return _decode(entry.value) if entry else None


def find_cut(tx: Transaction, session_id: SessionId) -> Cut | None:
    """Return where the last turn of a conversation was cut off, if it was, before somebody goes on with it."""
    for turn in tx.turns.find(session_id, running=True, limit=1):
        steps, last = tx.turns.steps(turn.id), tx.messages.last(session_id, 1)
        return Cut(turn.id, max((step.number for step in steps), default=0), last[-1].seq if last else 0)
    return None


def placed(tx: Transaction, session_id: SessionId, turn_id: TurnId, record: str, cut: Cut | None) -> Place | None:
    """Join a turn to its run, once for each record, and return where to tell of it; ``None`` if it belongs to none.

    ``cut`` is where it was cut off before, if it was. Only who owns the lane of the conversation may call this.
    """
    mark = read_mark(tx, session_id)
    if mark is not None and mark.turn_id == turn_id:
        if not mark.record:
            return None
        if mark.record != record:
            told = tuple(_told(tx, mark.run_id, mark.first))
            return _gone_on(tx, session_id, mark, told, record, cut or Cut(turn_id, 0, 0))
        before = tuple(_told(tx, mark.run_id, mark.first, mark.base))
        return Place(mark.run_id, mark.base, before, resumed=bool(before))
    run = _begun(tx, session_id, mark)
    if run is None:
        return None
    first = tx.events.append(stream_of(run.id), ())
    tx.runs.move(run.id, "running")
    fresh = Mark(turn_id, run.id, record, first, first)
    if cut is not None and cut.turn_id == turn_id:  # before a word of it was told
        return _gone_on(tx, session_id, fresh, (), record, cut)
    _put(tx, session_id, fresh)
    return Place(run.id, first)


def seal(tx: Transaction, session_id: SessionId) -> None:
    """Let nobody tell more of the turn that is marked: it is over."""
    mark = read_mark(tx, session_id)
    if mark is not None:
        _put(tx, session_id, structs.replace(mark, record=""))


def untold(tx: Transaction, mark: Mark) -> list[RunEvent]:
    """Return what the log of a turn knows that was over without anybody telling of it."""
    run = tx.runs.get(mark.run_id)
    if run is None:
        return []
    telling = Telling()
    telling.recall(_told(tx, mark.run_id, mark.first))
    return [*_untold(tx, run.session_id, Cut(mark.turn_id), telling), *telling.anew()]


def message_is_said(tx: Transaction, run: ApiRun) -> bool:
    """Tell whether what a run was started with is part of its conversation already."""
    return tx.messages.with_platform_id(run.session_id, run.id) is not None


def _gone_on(
    tx: Transaction, session_id: SessionId, mark: Mark, told: tuple[RunEvent, ...], record: str, cut: Cut
) -> Place:
    """Tell what was done but not told when the turn was cut off, and that it goes on."""
    telling = Telling()
    telling.recall(told)
    begun = [] if told else [TurnStarted(mark.turn_id)]
    missed = _untold(tx, session_id, cut, telling)
    more = [*begun, *missed, *telling.anew(), TurnResumed(mark.turn_id)]
    base = tell(tx, mark.run_id, session_id, more)
    tx.runs.move(mark.run_id, "running")
    _put(tx, session_id, Mark(mark.turn_id, mark.run_id, record, mark.first, base))
    return Place(mark.run_id, base, (*told, *more), resumed=True)


def _untold(tx: Transaction, session_id: SessionId, cut: Cut, telling: Telling) -> Iterator[RunEvent]:
    """Yield what the log of a turn knows up to where it was cut off, and nobody has told."""
    steps = [step for step in tx.turns.steps(cut.turn_id) if step.number <= cut.step]
    words = iter(_words(tx, session_id, sum(step.kind == MODEL for step in steps), cut.seq))
    known, messages = telling.messages, 0
    for step in steps:
        if step.kind != MODEL:
            yield from _untold_call(step, telling)
        elif text := next(words, ""):
            messages += 1
            if messages > known:
                yield from telling.said(text)


def _untold_call(step: Step, telling: Telling) -> Iterator[RunEvent]:
    record = _decode_call(step.request)
    call = record.call
    yield from telling.started(call.id, call.name, call.arguments, record.summary)
    if step.result is not None and step.ended_at is not None:
        result = _decode_result(step.result)
        seconds = (step.ended_at - step.started_at).total_seconds()
        yield from telling.completed(call.id, result.text, failed=result.failed, seconds=seconds)


def _words(tx: Transaction, session_id: SessionId, count: int, upto: int) -> Sequence[str]:
    """Return what the agent said in its last messages up to one, oldest first; where it only called tools, nothing."""
    reach = 4 * count + 8
    while True:
        stored = tx.messages.last(session_id, reach)
        said = [one.message for one in stored if one.message.role == "assistant" and one.seq <= upto]
        if len(said) >= count or len(stored) < reach:
            break
        reach *= 4
    return [_spoken(message) for message in (said[-count:] if count else [])]


def _spoken(message: Message) -> str:
    return "".join(part.text for part in message.parts if isinstance(part, Text))


def _begun(tx: Transaction, session_id: SessionId, mark: Mark | None) -> ApiRun | None:
    """Return the run whose message a turn has just taken, else the one that waits for what it has started."""
    ours = [run for run in tx.runs.open() if run.session_id == session_id]
    said = next((run for run in ours if run.state == "queued" and message_is_said(tx, run)), None)
    if said is not None or mark is None:
        return said
    return next((run for run in ours if run.id == mark.run_id), None)


def _told(tx: Transaction, run_id: str, after: int, upto: int = 2**62) -> Iterator[RunEvent]:
    while page := tx.events.after(stream_of(run_id), after, min(_PAGE, upto - after)) if after < upto else ():
        yield from map(unpacked, page)
        after = page[-1].seq


def _put(tx: Transaction, session_id: SessionId, mark: Mark) -> None:
    tx.state.put(_key(session_id), _encode(mark).decode())


def _key(session_id: SessionId) -> str:
    return f"run-turn:{session_id}"
