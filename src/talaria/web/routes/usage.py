"""Route of the usage page: tokens and cost by day, from the daily roll-up, with caps and dearest conversations."""

from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Literal

from msgspec import Meta, Struct

from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.sessions import SessionFilter
from talaria.contracts.stores.turns import Cap, DailyUsage, UsageGroup
from talaria.http.routing import Reply, Route, make_json_reply
from talaria.observability.trace import sum_usage
from talaria.web.front_door import USER, WebCaller, WebRequest

_TAG = "web"
_MOST_SESSIONS = 8


class UsageQuery(Struct, frozen=True):
    """The number of days up to today (UTC), and what to group by."""

    days: Annotated[int, Meta(ge=1, le=3660)] = 30
    by: UsageGroup = "model"


class UsageTotals(Struct, frozen=True, kw_only=True):
    """Sums of usage; ``cost_microdollars`` leaves out the ``unpriced_calls``, whose price is unknown."""

    turns: int
    calls: int
    unpriced_calls: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    cost_microdollars: int


class UsageSeries(Struct, frozen=True):
    """Usage of one model, surface or person: its sums, and cost, tokens and turns of each day."""

    name: str
    totals: UsageTotals
    cost: list[int]
    tokens: list[int]
    turns: list[int]


class SpendingCap(Struct, frozen=True):
    """A cap of this month and what is spent of it, in millionths of a dollar; ``name`` says for whom."""

    name: Literal["total", "person"]
    limit: int
    spent: int


class DearSession(Struct, frozen=True, kw_only=True):
    """A conversation with what it has cost so far."""

    id: str
    title: str
    source: str
    owner: str
    cost_microdollars: int
    updated_at: datetime


class UsageView(Struct, frozen=True, kw_only=True):
    """Usage of a period, largest cost first, and of today; numbers of days begin at ``first``.

    ``dearest`` are the conversations used in the period that have cost most.
    """

    first: date
    last: date
    totals: UsageTotals
    today: UsageTotals
    series: list[UsageSeries]
    caps: list[SpendingCap]
    dearest: list[DearSession]


class UsageRoutes:
    """Usage by day, model, surface and person; people see only their own."""

    def __init__(self, store: Store, caps: Callable[[str], tuple[Cap, Cap]]) -> None:
        self._store = store
        self._caps = caps

    def routes(self) -> tuple[Route, ...]:
        """Return the routes."""
        return (
            Route(method="GET", path="/web/usage", handler=self._show, summary="Show tokens and cost by day",
                  scope=USER, asks=UsageQuery, reply_type=UsageView, tag=_TAG),
        )  # fmt: skip

    async def _show(self, request: WebRequest) -> Reply:
        asked, caller = request.parse_query(UsageQuery), request.caller
        caps = self._caps(caller.person)
        return make_json_reply(await self._store.read(lambda tx: read_usage(tx, asked, caller, caps)))


def read_usage(tx: Transaction, asked: UsageQuery, caller: WebCaller, caps: tuple[Cap, Cap]) -> UsageView:
    """Return the usage that a person may see; ``caps`` are those in total and for this person."""
    last = datetime.now(UTC).date()
    first = last - timedelta(days=asked.days - 1)
    rows = _read_rows(tx, asked.by, first, last, caller)
    members: dict[str, list[DailyUsage]] = {}
    for row in rows:
        members.setdefault(row.member, []).append(row)
    series = [_make_series(name, found, first, asked.days) for name, found in members.items()]
    series.sort(key=lambda one: (-one.totals.cost_microdollars, -sum(one.tokens), one.name))
    total = SpendingCap("total", caps[0].limit, tx.ledger.read_spent(caps[0].account))
    person = SpendingCap("person", caps[1].limit, tx.ledger.read_spent(caps[1].account))
    return UsageView(
        first=first,
        last=last,
        totals=_add_up(rows),
        today=_add_up([row for row in rows if row.day == last]),
        series=series,
        caps=[cap for cap in (*([total] if caller.is_owner else []), person) if cap.limit],
        dearest=_find_dearest(tx, first, caller),
    )


def read_today(tx: Transaction, caller: WebCaller) -> UsageTotals:
    """Return the usage of today."""
    today = datetime.now(UTC).date()
    return _add_up(_read_rows(tx, "model", today, today, caller))


def _read_rows(tx: Transaction, group: UsageGroup, first: date, last: date, caller: WebCaller) -> list[DailyUsage]:
    return tx.usage.by_day(group, first, last, owner=None if caller.is_owner else caller.person)


def _find_dearest(tx: Transaction, first: date, caller: WebCaller) -> list[DearSession]:
    criteria = SessionFilter(
        updated_after=datetime(first.year, first.month, first.day, tzinfo=UTC),
        seen_by=caller.viewer,
        archived=None,
        dearest_first=True,
        limit=_MOST_SESSIONS,
    )
    return [
        DearSession(
            id=one.id,
            title=one.title,
            source=one.source,
            owner=one.owner,
            cost_microdollars=one.usage.cost_microdollars,
            updated_at=one.updated_at,
        )
        for one in tx.sessions.find(criteria)
        if one.usage.cost_microdollars
    ]


def _make_series(name: str, rows: list[DailyUsage], first: date, days: int) -> UsageSeries:
    series = UsageSeries(name, _add_up(rows), [0] * days, [0] * days, [0] * days)
    for row in rows:
        index = (row.day - first).days
        series.cost[index] = row.usage.cost_microdollars
        series.tokens[index] = row.usage.input_tokens + row.usage.output_tokens
        series.turns[index] = row.turns
    return series


def _add_up(rows: Iterable[DailyUsage]) -> UsageTotals:
    known = list(rows)
    usage = sum_usage(row.usage for row in known)
    return UsageTotals(
        turns=sum(row.turns for row in known),
        calls=usage.calls,
        unpriced_calls=sum(row.unpriced_calls for row in known),
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        cost_microdollars=usage.cost_microdollars,
    )
