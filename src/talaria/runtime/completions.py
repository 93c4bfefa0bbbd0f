"""Completions: results of background work, stored until they are queued as messages of their session."""

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import groupby

import msgspec
from msgspec import Struct, structs

from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.queues import InboxItem
from talaria.contracts.stores.turns import Completion
from talaria.contracts.turns import TurnResult
from talaria.contracts.values import SessionValue
from talaria.core.addresses import Address, ReplyRoute
from talaria.core.ids import SessionId
from talaria.core.messages import PROGRAM, UNKNOWN, Message, Text, ToolResult
from talaria.core.session_context import SessionContext
from talaria.runtime.turns import make_arrival
from talaria.runtime.workers import is_leased, session_lease_name

WAKE = "wake"  # topic notified of new reports; also source and kind of their inbox items
BATCH_WINDOW = 0.03  # seconds that an idle session waits for more reports before it starts a turn
_REPORT_TEMPLATE = "This message is automatic, not from the person. Your background work reports:\n\n{}"
_SEPARATOR = "\n\n---\n\n"
_MAX_LENGTH = 60_000


class Origin(Struct, frozen=True, omit_defaults=True):
    """The message that started background work: its chat, id and sender."""

    platform: str = ""
    chat_id: str = ""
    thread_id: str = ""
    message_id: str = ""
    user_id: str = ""
    user_name: str = ""
    chat_name: str = ""
    sender: str = UNKNOWN

    def is_at(self, address: Address) -> bool:
        """Return whether the message was written at this address."""
        here = (address.platform, address.chat_id, address.thread_id)
        return (self.platform, self.chat_id, self.thread_id) == here


class Report(Struct, frozen=True, omit_defaults=True):
    """The text of a completion and the message that started the work."""

    text: str
    origin: Origin = Origin()


class _PendingAnswer(Struct, frozen=True):
    """A tool call that returns a report as its result, expected ``after`` that many messages."""

    call_id: str
    after: int


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Report).decode
PENDING_ANSWERS = SessionValue("pending_answers", dict[str, _PendingAnswer])


def read_origin(context: SessionContext) -> Origin:
    """Return the origin for work that a turn with this context starts."""
    return Origin(**{name: getattr(context, name) for name in Origin.__struct_fields__})


def report(
    tx: Transaction,
    session_id: SessionId,
    source: str,
    external_id: str,
    text: str,
    *,
    origin: Origin = Origin(),  # noqa: B008 (it never changes)
) -> bool:
    """Store a completion for a session, once for each ``source`` and ``external_id``.

    Returns ``False`` for a duplicate and for a session that no longer exists.
    """
    if tx.sessions.get(session_id) is None:
        return False
    added = tx.completions.add(session_id, source, external_id, _encode(Report(text, origin)).decode())
    if added:
        tx.notify(WAKE)
    return added


def record_pending_answers(
    tx: Transaction, session_id: SessionId, source: str, external_ids: Sequence[str], call_id: str
) -> None:
    """Record that a tool call is about to return these reports.

    They are queued as usual if the result of the call never reaches the transcript.
    """
    session = tx.sessions.get(session_id)
    if session is not None:
        pending = _PendingAnswer(call_id, session.message_count)
        marks = _read_pending_answers(tx, session_id) | {_report_key(source, one): pending for one in external_ids}
        PENDING_ANSWERS.write(tx, session_id, marks)


def queue_reports(tx: Transaction, session_id: SessionId) -> list[InboxItem]:
    """Move all unreported completions to the inbox, and return the new inbox items.

    Consecutive reports on work of the same sender make one message, in order, and its turn has that sender's rights.
    The reply goes to the address bound to the session now, and refers to the last originating message written there.
    """
    found = tx.completions.take(session_id)
    if not found or tx.sessions.get(session_id) is None:
        return []
    reports = [(one.id, _decode(one.payload)) for one in _drop_answered(tx, session_id, found)]
    groups = [list(group) for _, group in groupby(reports, lambda pair: pair[1].origin.sender)]
    added = [_queue_message(tx, session_id, group[-1][0], [one for _, one in group]) for group in groups]
    return [item for item in added if item is not None]


def _queue_message(tx: Transaction, session_id: SessionId, number: int, reports: Sequence[Report]) -> InboxItem | None:
    body = Text(_REPORT_TEMPLATE.format(_SEPARATOR.join(_truncate([one.text for one in reports]))))
    message = Message(role="user", parts=(body,), at=datetime.now(UTC), author=PROGRAM)
    origins = [one.origin for one in reports]
    route, sender, name = _find_reply_route(tx, session_id, origins), origins[-1].sender, f"{session_id}:{number}"
    return tx.inbox.add(make_arrival(session_id, WAKE, name, message, kind=WAKE, route=route, sender=sender))


def queue_reports_if_idle(tx: Transaction, session_id: SessionId) -> list[InboxItem]:
    """Queue reports unless a turn is running or unfinished, or reports are already in the inbox.

    The end of that turn queues them instead; an interrupted turn does so once it has been resumed.
    """
    if is_leased(tx, session_lease_name(session_id)) or tx.turns.find(session_id, running=True, limit=1):
        return []
    if any(item.kind == WAKE for item in tx.inbox.list_unsettled(session_id)):
        return []
    return queue_reports(tx, session_id)


def is_report(content: str) -> bool:
    """Return whether a turn started with a background report instead of a person's message."""
    return content.startswith(_REPORT_TEMPLATE.partition("{}")[0])


def is_delivery_target(tx: Transaction, session_id: SessionId, key: str) -> bool:
    """Return whether reports of a session are delivered at this key; without bindings, any key is."""
    bindings = tx.bindings.of_session(session_id)
    return not bindings or bindings[0].key == key


async def has_reports(store: Store, session_id: SessionId) -> bool:
    """Return whether a session has pending reports."""
    return session_id in await store.read(lambda tx: tx.completions.waiting())


async def queue_pending_reports(store: Store, session_id: SessionId, key: str = "") -> bool:
    """Queue the reports of an idle session that is bound to ``key``; return whether any were queued.

    The caller then wakes the session.
    """
    if not await has_reports(store, session_id):
        return False

    def work(tx: Transaction) -> bool:
        return is_delivery_target(tx, session_id, key) and bool(queue_reports_if_idle(tx, session_id))

    return await store.write(work)


class CompletionListener(Struct, frozen=True):
    """Turn listener that queues reports of background work together when a turn ends; implements `TurnListener`.

    ``key`` is the session key at which the session is open.
    """

    key: str = ""

    def turn_ended(self, tx: Transaction, result: TurnResult) -> None:
        """Queue pending reports in the transaction that ends the turn."""
        is_waiting = result.session_id in tx.completions.waiting()
        if is_waiting and is_delivery_target(tx, result.session_id, self.key):
            queue_reports(tx, result.session_id)


def _drop_answered(tx: Transaction, session_id: SessionId, found: Sequence[Completion]) -> list[Completion]:
    """Return the completions that no tool call has returned; a stopped call counts as unanswered."""
    marks = _read_pending_answers(tx, session_id)
    if not marks:
        return list(found)
    PENDING_ANSWERS.delete(tx, session_id)
    answered = [mark for mark, pending in marks.items() if _is_answered(tx, session_id, pending)]
    return [one for one in found if _report_key(one.source, one.external_id) not in answered]


def _is_answered(tx: Transaction, session_id: SessionId, pending: _PendingAnswer) -> bool:
    """Return whether the transcript has a successful result of the call or of its parent call."""
    content = [part for stored in tx.messages.load(session_id, after=pending.after) for part in stored.message.parts]
    results = [part for part in content if isinstance(part, ToolResult) and not part.failed]
    return any(pending.call_id == one.call_id or pending.call_id.startswith(f"{one.call_id}.") for one in results)


def _read_pending_answers(tx: Transaction, session_id: SessionId) -> dict[str, _PendingAnswer]:
    return PENDING_ANSWERS.get(tx, session_id) or {}


def _report_key(source: str, external_id: str) -> str:
    return f"{source}:{external_id}"


def _truncate(texts: Sequence[str]) -> list[str]:
    """Limit the total length of texts: if it is too long, each gets at most an equal share."""
    if sum(map(len, texts)) <= _MAX_LENGTH:
        return list(texts)
    share = _MAX_LENGTH // len(texts)
    return [text if len(text) <= share else f"{text[:share]} […]" for text in texts]


def _find_reply_route(tx: Transaction, session_id: SessionId, origins: Sequence[Origin]) -> ReplyRoute | None:
    bindings = tx.bindings.of_session(session_id)
    if not bindings:
        return None
    address = bindings[0].address
    route = ReplyRoute(address)
    for origin in origins:
        if origin.is_at(address):
            route = structs.replace(
                route,
                reply_to=origin.message_id or route.reply_to,
                user_id=origin.user_id,
                user_name=origin.user_name,
                chat_name=origin.chat_name,
            )
    return route
