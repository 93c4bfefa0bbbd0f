"""The part of search that every engine shares: filters, and hits from what an index found."""

from collections.abc import Sequence

import msgspec

from talaria.contracts.stores.search import Hit, SearchQuery
from talaria.core.messages import text_of
from talaria.storage.snippets import Snippets
from talaria.storage.sql import Sql, Value, decode_stored, from_stamp, to_stamp
from talaria.storage.tables.messages import SEQ_BITS, Body
from talaria.storage.tables.sight import visible_to
from talaria.storage.words import Query

WINDOW = 2000  # of the messages that fit, so many of the newest are ranked
JOINS = (
    " JOIN messages ON messages.id = arrivals.message_id"
    f" JOIN sessions ON sessions.number = (messages.id >> {SEQ_BITS})"
)

_decode = msgspec.json.Decoder(Body).decode


def filters(query: SearchQuery) -> tuple[str, list[Value]]:
    """Return conditions on ``messages`` and ``sessions``, each behind an ``AND``, and their values."""
    conditions: list[tuple[str, Value]] = [("sessions.source = ?", query.source)] if query.source else []
    if query.role is not None:
        conditions.append(("messages.role = ?", query.role))
    if query.session_id is not None:
        conditions.append(("sessions.id = ?", query.session_id))
    if query.owner is not None:
        conditions.append(("sessions.owner = ?", query.owner))
    conditions += [(f"sessions.{condition}", value) for condition, value in visible_to(query.seen_by)]
    if query.since is not None:
        conditions.append(("messages.at >= ?", to_stamp(query.since)))
    if query.until is not None:
        conditions.append(("messages.at < ?", to_stamp(query.until)))
    return "".join(f" AND {condition}" for condition, _ in conditions), [value for _, value in conditions]


def make_hits(sql: Sql, snippets: Snippets, query: Query, scored: Sequence[tuple[int, float]]) -> list[Hit]:
    """Turn pairs of arrival number and score into hits, in the order given."""
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


def searchable_text(body: str) -> str:
    """Return the words of a stored message."""
    return text_of(decode_stored(_decode, body).parts)
