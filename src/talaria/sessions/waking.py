"""Wake a conversation: what its background work reports waits in the store, and becomes one message in its inbox."""

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import groupby
from typing import ClassVar

import msgspec
from msgspec import Struct, structs

from talaria.contracts.follower import Ending
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.completions import Completion
from talaria.contracts.stores.inbox import InboxItem
from talaria.core.addresses import Address, Route
from talaria.core.ids import SessionId
from talaria.core.messages import Message, Text, ToolResult
from talaria.core.senders import UNKNOWN
from talaria.core.session_context import SessionContext
from talaria.sessions.holding import is_held, lane_of
from talaria.sessions.lane import arrival
from talaria.sessions.transcripts import PROGRAM

WAKE = "wake"  # the topic of hints that something was reported; source and kind of what is put into an inbox
GATHERING = 0.03  # how many seconds a place that rests waits for what else is reported in the same moment
_TOLD = "This is not from the person. What you started in the background reports:\n\n{}"
_BETWEEN = "\n\n---\n\n"
_LONGEST = 60_000


class Origin(Struct, frozen=True, omit_defaults=True):
    """The message that led to something: where it was written, and by whom."""

    platform: str = ""
    chat_id: str = ""
    thread_id: str = ""
    message_id: str = ""
    user_id: str = ""
    user_name: str = ""
    chat_name: str = ""
    sender: str = UNKNOWN

    def is_at(self, address: Address) -> bool:
        """Tell whether that was at this place."""
        here = (address.platform, address.chat_id, address.thread_id)
        return (self.platform, self.chat_id, self.thread_id) == here


class Report(Struct, frozen=True, omit_defaults=True):
    """What is told, and the message that led to it."""

    text: str
    origin: Origin = Origin()


class _Heard(Struct, frozen=True):
    """A tool call that answers with something that was reported, when ``after`` so many messages."""

    call_id: str
    after: int


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Report).decode
_decode_heard = msgspec.json.Decoder(dict[str, _Heard]).decode


def origin_of(context: SessionContext) -> Origin:
    """Return what led to whatever a turn of this context starts."""
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
    """Let something be told to a conversation, once for each ``source`` and ``external_id``.

    ``False`` for what was reported before, and for a conversation that is no more. A hint of the topic `WAKE` behind
    the transaction lets it be told at once.
    """
    if tx.sessions.get(session_id) is None:
        return False
    return tx.completions.add(session_id, source, external_id, _encode(Report(text, origin)).decode())


def hear(tx: Transaction, session_id: SessionId, source: str, external_ids: Sequence[str], call_id: str) -> None:
    """Take note that a tool call is about to answer with these reports: they are told if that answer never comes."""
    session, key = tx.sessions.get(session_id), _heard_key(session_id)
    if session is not None:
        heard = _Heard(call_id, session.message_count)
        marks = _heard(tx, session_id) | {_mark(source, one): heard for one in external_ids}
        tx.state.put(key, _encode(marks).decode())


def fold_in(tx: Transaction, session_id: SessionId) -> list[InboxItem]:
    """Put all that was reported and not heard yet into the inbox, and return the messages; none if there is nothing.

    Reports on work that the same person started make one message, in order: the turn for it has that person's rights.
    The reply goes to where the conversation is now; it answers the message that led to the last report, if that was
    written there.
    """
    taken = tx.completions.take(session_id)
    if not taken or tx.sessions.get(session_id) is None:
        return []
    reports = [(one.id, _decode(one.payload)) for one in _unheard(tx, session_id, taken)]
    groups = [list(group) for _, group in groupby(reports, lambda pair: pair[1].origin.sender)]
    added = [_put(tx, session_id, group[-1][0], [one for _, one in group]) for group in groups]
    return [item for item in added if item is not None]


def _put(tx: Transaction, session_id: SessionId, number: int, reports: Sequence[Report]) -> InboxItem | None:
    words = Text(_TOLD.format(_BETWEEN.join(_shortened([one.text for one in reports]))))
    message = Message(role="user", parts=(words,), at=datetime.now(UTC), author=PROGRAM)
    origins = [one.origin for one in reports]
    route, sender, name = _route(tx, session_id, origins), origins[-1].sender, f"{session_id}:{number}"
    return tx.inbox.add(arrival(session_id, WAKE, name, message, kind=WAKE, route=route, sender=sender))


def fold_in_at_rest(tx: Transaction, session_id: SessionId) -> list[InboxItem]:
    """Do so unless somebody works on the conversation, or is about to tell: who does tells the rest behind that.

    A turn that was cut off is worked on when it goes on.
    """
    if is_held(tx, lane_of(session_id)) or tx.turns.find(session_id, running=True, limit=1):
        return []
    if any(item.kind == WAKE for item in tx.inbox.unsettled(session_id)):
        return []
    return fold_in(tx, session_id)


def is_report(said: str) -> bool:
    """Tell whether a turn began with what the background reports, and not with what a person said."""
    return said.startswith(_TOLD.partition("{}")[0])


def is_told_at(tx: Transaction, session_id: SessionId, key: str) -> bool:
    """Tell whether the place of this key is the one at which a conversation is told; a terminal has none."""
    bindings = tx.bindings.of_session(session_id)
    return not bindings or bindings[0].key == key


async def has_reports(store: Store, session_id: SessionId) -> bool:
    """Tell whether there is something to be told to a conversation."""
    return session_id in await store.read(lambda tx: tx.completions.waiting())


async def tell(store: Store, session_id: SessionId, key: str = "") -> bool:
    """Put what was reported into the inbox of a conversation that rests and is told here; tell whether there was any.

    Whoever calls this wakes the conversation then.
    """
    if not await has_reports(store, session_id):
        return False

    def work(tx: Transaction) -> bool:
        return is_told_at(tx, session_id, key) and bool(fold_in_at_rest(tx, session_id))

    return await store.write(work)


class Told(Struct, frozen=True):
    """Implements `Follower`: what was reported while a turn ran is told behind it, all at once.

    ``key`` is that of the place at which the conversation is open.
    """

    resumable: ClassVar = True
    key: str = ""

    def turn_ended(self, tx: Transaction, ending: Ending) -> None:
        """Put it into the inbox, in the transaction that ends the turn."""
        if is_told_at(tx, ending.session_id, self.key):
            fold_in(tx, ending.session_id)

    async def follow_up(self) -> bool:
        """Do nothing more."""
        return False


def _unheard(tx: Transaction, session_id: SessionId, taken: Sequence[Completion]) -> list[Completion]:
    """Return what no tool call has answered with; a call that was stopped before has answered nothing."""
    marks = _heard(tx, session_id)
    if not marks:
        return list(taken)
    tx.state.delete(_heard_key(session_id))
    answered = [mark for mark, heard in marks.items() if _is_answered(tx, session_id, heard)]
    return [one for one in taken if _mark(one.source, one.external_id) not in answered]


def _is_answered(tx: Transaction, session_id: SessionId, heard: _Heard) -> bool:
    """Tell whether the transcript has the answer of a call, or of the one that made it."""
    said = [part for stored in tx.messages.load(session_id, after=heard.after) for part in stored.message.parts]
    results = [part for part in said if isinstance(part, ToolResult) and not part.failed]
    return any(heard.call_id == one.call_id or heard.call_id.startswith(f"{one.call_id}.") for one in results)


def _heard(tx: Transaction, session_id: SessionId) -> dict[str, _Heard]:
    entry = tx.state.get(_heard_key(session_id))
    return _decode_heard(entry.value) if entry else {}


def _heard_key(session_id: SessionId) -> str:
    return f"heard:{session_id}"


def _mark(source: str, external_id: str) -> str:
    return f"{source}:{external_id}"


def _shortened(texts: Sequence[str]) -> list[str]:
    """Return texts that a model can take in together: where they are too long, none gets more than its share."""
    if sum(map(len, texts)) <= _LONGEST:
        return list(texts)
    share = _LONGEST // len(texts)
    return [text if len(text) <= share else f"{text[:share]} […]" for text in texts]


def _route(tx: Transaction, session_id: SessionId, origins: Sequence[Origin]) -> Route | None:
    bindings = tx.bindings.of_session(session_id)
    if not bindings:
        return None
    address = bindings[0].address
    route = Route(address)
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
