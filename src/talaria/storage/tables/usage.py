"""Usage of models by session, and by day, model, surface and owner."""

from datetime import date, timedelta

from msgspec import structs

from talaria.contracts.stores.usage import DailyUsage, UsageGroup
from talaria.core.ids import SessionId
from talaria.core.messages import Usage
from talaria.storage.tables.sql import Row, Sql

_EPOCH = date(1970, 1, 1)
_DAY = 86_400_000_000  # microseconds
_FIELDS = tuple(field.name for field in structs.fields(Usage))
_SUMS = ("turns", "unpriced_calls", *_FIELDS)
_ADD = (
    f"INSERT INTO daily_usage (day, model, surface, owner, {', '.join(_SUMS)})"
    f" SELECT ?, CASE WHEN ? = '' THEN model ELSE ? END, source, owner, {', '.join('?' * len(_SUMS))}"
    " FROM sessions WHERE id = ? ON CONFLICT (day, model, surface, owner) DO UPDATE"
    f" SET {', '.join(f'{name} = daily_usage.{name} + excluded.{name}' for name in _SUMS)}"
)


class UsageTable:
    """SQL implementation of `UsageLog`."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    def add(self, session_id: SessionId, usage: Usage, *, model: str = "", turns: int = 0) -> None:
        """Add to the counters of a session and of the day."""
        counts = structs.astuple(usage)
        sums = ", ".join(f"{name} = {name} + ?" for name in _FIELDS)
        self._sql.run(f"UPDATE sessions SET {sums} WHERE id = ?", (*counts, session_id))
        unpriced = 0 if usage.cost_microdollars else usage.calls
        self._sql.run(_ADD, (self._sql.now // _DAY, model, model, turns, unpriced, *counts, session_id))

    def by_day(self, group: UsageGroup, first: date, last: date, *, owner: str | None = None) -> list[DailyUsage]:
        """Return the usage of each day and member of a group, oldest first."""
        condition, values = ("", ()) if owner is None else (" AND owner = ?", (owner,))
        rows = self._sql.rows(
            f"SELECT day, {group}, {', '.join(f'sum({name})' for name in _SUMS)} FROM daily_usage"
            f" WHERE day BETWEEN ? AND ?{condition} GROUP BY day, {group} ORDER BY day, {group}{self._sql.bytewise}",
            ((first - _EPOCH).days, (last - _EPOCH).days, *values),
        )
        return [_to_daily_usage(row) for row in rows]


def _to_daily_usage(row: Row) -> DailyUsage:
    day, member, turns, unpriced, *counts = row
    return DailyUsage(_EPOCH + timedelta(days=int(day)), member, int(turns), int(unpriced), Usage(*map(int, counts)))
