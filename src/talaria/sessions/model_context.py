"""Stored context of a session for its model: the prompt prefix, the current summary and the messages after it."""

from collections.abc import Callable

import msgspec
from msgspec import Struct, field, structs

from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.sessions import StoredMessage
from talaria.contracts.turns import HistoryPage, Summary
from talaria.contracts.values import SessionValue
from talaria.core.ids import SessionId

PREFIX_BREAK = "prefix_break"
_PAGE_SIZE = 50  # messages; more would hold up other writers
_encode = msgspec.json.Encoder().encode


class Prefix(Struct, frozen=True):
    """The part of every request that precedes the messages.

    ``tools`` is a digest of them, ``options`` describes effort, temperature and length. ``audience`` is who can
    read: memories of one chat are not shown in another.
    """

    instructions: str
    tools: str
    model: str
    options: str = field(default="", name="manner")
    audience: str = ""


PROMPT_PREFIX = SessionValue("prompt_prefix", Prefix)


def read_prefix(tx: Transaction, session_id: SessionId) -> Prefix | None:
    """Return the prefix that the last turn of a session used, if there was one."""
    return PROMPT_PREFIX.get(tx, session_id)


def choose_prefix(stored: Prefix | None, requested: Prefix, instructions: Callable[[], str]) -> Prefix:
    """Return the stored prefix of the session if it still fits, otherwise the requested one.

    A stored prefix fits whatever the instructions would be now. With another model, tool set, audience or options the
    requested prefix is used, with new instructions.
    """
    if stored is not None and not _find_difference(stored, requested):
        return stored
    return structs.replace(requested, instructions=instructions())


def save_prefix(tx: Transaction, session_id: SessionId, used: Prefix) -> None:
    """Store the prefix that a turn is about to use, and record why it changed, if it did."""
    if PROMPT_PREFIX.replace(tx, session_id, used, version=0):
        return
    stored = read_prefix(tx, session_id)
    if stored is not None and stored != used:
        record_break(tx, session_id, f"{_find_difference(stored, used) or 'the instructions'} changed")
        PROMPT_PREFIX.write(tx, session_id, used)


def _find_difference(stored: Prefix, requested: Prefix) -> str:
    """Return what makes a new prefix necessary; empty if the stored one can be used."""
    if stored.model != requested.model:
        return "the model"
    if stored.tools != requested.tools:
        return "the tool set"
    if stored.audience != requested.audience:
        return "the audience"
    return "the model's options" if stored.options != requested.options else ""


def record_break(tx: Transaction, session_id: SessionId, reason: str) -> None:
    """Record that the next request starts differently from the last one, and why."""
    tx.events.append(f"session:{session_id}", [(PREFIX_BREAK, _encode({"reason": reason}).decode())])


class StoredSummary(Struct, frozen=True):
    """A summary, and whether a model has seen it yet."""

    summary: Summary
    shown: bool = False


SUMMARY = SessionValue("summary", StoredSummary)


def read_summary(tx: Transaction, session_id: SessionId) -> StoredSummary | None:
    """Return the current summary, without marking it as seen."""
    return SUMMARY.get(tx, session_id)


def mark_shown(tx: Transaction, session_id: SessionId) -> None:
    """Record, once, that models see the current summary from now on, which changes their prefix."""
    stored = read_summary(tx, session_id)
    if stored is not None and not stored.shown:
        SUMMARY.write(tx, session_id, StoredSummary(stored.summary, shown=True))
        record_break(tx, session_id, f"messages 1 to {stored.summary.upto} are summarised")


def read_page(tx: Transaction, session_id: SessionId, after: int) -> HistoryPage | None:
    """Return what `StoredHistory.read` does, in the transaction that begins a turn; ``None`` for many messages."""
    stored = read_summary(tx, session_id)
    covered = stored.summary.upto if stored else 0
    messages = tx.messages.load(session_id, after=max(after, covered), limit=_PAGE_SIZE + 1)
    if len(messages) > _PAGE_SIZE:
        return None
    mark_shown(tx, session_id)
    return HistoryPage(after, stored.summary if stored else None, messages)


class StoredHistory:
    """Implementation of `History`."""

    def __init__(self, store: Store, session_id: SessionId) -> None:
        self._store = store
        self._session_id = session_id

    async def read(self, after: int) -> tuple[Summary | None, list[StoredMessage]]:
        """Return the current summary, and the messages after both ``after`` and its end."""

        def work(tx: Transaction) -> tuple[StoredSummary | None, list[StoredMessage]]:
            stored = read_summary(tx, self._session_id)
            covered = stored.summary.upto if stored else 0
            return stored, tx.messages.load(self._session_id, after=max(after, covered))

        stored, messages = await self._store.read(work)
        if stored is not None and not stored.shown:
            await self._store.write(lambda tx: mark_shown(tx, self._session_id))
            stored, messages = await self._store.read(work)
        return stored.summary if stored else None, messages

    async def save(self, summary: Summary) -> None:
        """Store a new summary, unless another one that reaches as far was stored meanwhile."""

        def work(tx: Transaction) -> None:
            stored = read_summary(tx, self._session_id)
            if stored is None or stored.summary.upto < summary.upto:
                SUMMARY.write(tx, self._session_id, StoredSummary(summary))

        await self._store.write(work)
