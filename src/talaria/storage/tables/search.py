"""Search code shared by all engines: filters, and hits built from index results."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from talaria.contracts.stores.sessions import Hit, SearchQuery
from talaria.storage.tables.search_terms import ParsedQuery
from talaria.storage.tables.sessions import SEQ_BITS, build_visibility, searchable_text
from talaria.storage.tables.sql import Sql, Value, from_stamp, to_stamp

if TYPE_CHECKING:  # loaded with the first search
    from talaria.storage.tables.snippets import SnippetMaker

RANKED_LIMIT = 2000  # only this many of the newest matches are ranked
JOINS = (
    " JOIN messages ON messages.id = arrivals.message_id"
    f" JOIN sessions ON sessions.number = (messages.id >> {SEQ_BITS})"
)


def build_filters(query: SearchQuery) -> tuple[str, list[Value]]:
    """Return conditions on ``messages`` and ``sessions``, each prefixed with ``AND``, and their values."""
    conditions: list[tuple[str, Value]] = [("sessions.source = ?", query.source)] if query.source else []
    if query.role is not None:
        conditions.append(("messages.role = ?", query.role))
    if query.session_id is not None:
        conditions.append(("sessions.id = ?", query.session_id))
    if query.owner is not None:
        conditions.append(("sessions.owner = ?", query.owner))
    conditions += [(f"sessions.{condition}", value) for condition, value in build_visibility(query.seen_by)]
    if query.since is not None:
        conditions.append(("messages.at >= ?", to_stamp(query.since)))
    if query.until is not None:
        conditions.append(("messages.at < ?", to_stamp(query.until)))
    return "".join(f" AND {condition}" for condition, _ in conditions), [value for _, value in conditions]


def make_hits(sql: Sql, snippets: "SnippetMaker", query: ParsedQuery, scored: Sequence[tuple[int, float]]) -> list[Hit]:
    """Build hits from (arrival number, score) pairs, in the given order."""
    if not scored:
        return []
    rows = sql.rows(
        "SELECT arrivals.number, sessions.id, sessions.title, messages.id, messages.role, messages.at, messages.body"
        f" FROM arrivals{JOINS} WHERE arrivals.number IN ({', '.join('?' * len(scored))})",
        [number for number, _ in scored],
    )
    by_number = {number: columns for number, *columns in rows}
    found = [(by_number[number], score) for number, score in scored if number in by_number]
    marked = snippets.mark([searchable_text(row[5]) for row, _ in found], query)
    return [
        Hit(
            session_id=session_id,
            session_title=title,
            seq=message_id & ((1 << SEQ_BITS) - 1),
            role=role,
            at=from_stamp(at),
            snippet=snippet,
            score=score,
        )
        for ((session_id, title, message_id, role, at, _), score), snippet in zip(found, marked, strict=True)
    ]
