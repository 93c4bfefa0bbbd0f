"""Usage, summed by session and by day, model, surface and owner."""

from datetime import UTC, date, datetime, timedelta

from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import NewSession
from talaria.contracts.stores.turns import DailyUsage
from talaria.core.ids import SessionId
from talaria.core.messages import Usage
from talaria.testing.clock import SettableClock

CALL = Usage(1, 100, 20, 50, 10, 5, 1_000)


def session(tx: Transaction, source: str = "cli", owner: str = "", model: str = "") -> SessionId:
    return tx.sessions.create(NewSession(source=source, owner=owner, model=model)).id


def today(clock: SettableClock) -> date:
    return clock.now().astimezone(UTC).date()


def test_calls_of_a_day_are_summed_by_model_surface_and_owner(mine: Transaction, clock: SettableClock) -> None:
    one, other = session(mine), session(mine, "telegram", "alice")
    mine.usage.add(one, CALL, model="small")
    mine.usage.add(one, CALL, model="small", turns=1)
    mine.usage.add(other, CALL, model="large", turns=1)
    day = today(clock)
    assert mine.usage.by_day("model", day, day) == [
        DailyUsage(day, "large", 1, 0, CALL),
        DailyUsage(day, "small", 1, 0, Usage(2, 200, 40, 100, 20, 10, 2_000)),
    ]
    assert [(row.member, row.turns) for row in mine.usage.by_day("surface", day, day)] == [("cli", 1), ("telegram", 1)]
    assert [(row.member, row.turns) for row in mine.usage.by_day("owner", day, day)] == [("", 1), ("alice", 1)]
    found = mine.sessions.get(one)
    assert found is not None
    assert found.usage == Usage(2, 200, 40, 100, 20, 10, 2_000)


def test_a_person_sees_only_their_own_usage(mine: Transaction, clock: SettableClock) -> None:
    mine.usage.add(session(mine), CALL, model="small")
    mine.usage.add(session(mine, owner="alice"), CALL, model="small")
    day = today(clock)
    assert [row.usage for row in mine.usage.by_day("model", day, day, owner="alice")] == [CALL]
    assert mine.usage.by_day("model", day, day, owner="bob") == []


def test_days_are_listed_oldest_first_and_end_at_midnight_utc(mine: Transaction, clock: SettableClock) -> None:
    here = session(mine)
    late = datetime.combine(today(clock) + timedelta(days=1), datetime.min.time(), UTC) - timedelta(seconds=1)
    clock.advance(late - clock.now())
    mine.usage.add(here, CALL, model="small")
    first = today(clock)
    clock.advance(timedelta(seconds=1))
    mine.usage.add(here, CALL, model="small")
    last = today(clock)
    assert last == first + timedelta(days=1)
    assert [row.day for row in mine.usage.by_day("model", first, last)] == [first, last]
    assert [row.day for row in mine.usage.by_day("model", last, last)] == [last]


def test_calls_without_a_price_are_counted(mine: Transaction, clock: SettableClock) -> None:
    mine.usage.add(session(mine), CALL, model="hosted")
    mine.usage.add(session(mine), Usage(2, 10, 10), model="hosted", has_price=False)
    mine.usage.add(session(mine), Usage(4, 10, 10), model="local")
    day = today(clock)
    found = [(row.unpriced_calls, row.usage.calls) for row in mine.usage.by_day("model", day, day)]
    assert found == [(2, 3), (0, 4)]


def test_a_turn_without_a_call_counts_for_the_model_of_its_session(mine: Transaction, clock: SettableClock) -> None:
    mine.usage.add(session(mine, model="chosen"), Usage(), turns=1)
    day = today(clock)
    assert mine.usage.by_day("model", day, day) == [DailyUsage(day, "chosen", 1, 0, Usage())]


def test_daily_usage_remains_when_the_session_is_deleted(mine: Transaction, clock: SettableClock) -> None:
    gone = session(mine)
    mine.usage.add(gone, CALL, model="small")
    mine.sessions.delete(gone)
    mine.usage.add(gone, CALL, model="small")
    day = today(clock)
    assert [row.usage for row in mine.usage.by_day("model", day, day)] == [CALL]


def test_usage_with_an_earlier_time_counts_on_that_day(mine: Transaction, clock: SettableClock) -> None:
    day = date(2025, 3, 4)
    mine.usage.add(session(mine), CALL, model="small", at=datetime(2025, 3, 4, 12, tzinfo=UTC))
    assert [row.day for row in mine.usage.by_day("model", day, today(clock))] == [day]
