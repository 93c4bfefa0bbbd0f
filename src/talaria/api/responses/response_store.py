"""Responses in the store, and those processed as runs: built from the events of their run, by any server."""

from collections.abc import Sequence
from typing import Literal
from urllib.parse import quote

import msgspec
from msgspec import Raw, Struct, structs

from talaria.api.front_door import ApiCaller
from talaria.api.responses.builder import ResponseBuilder
from talaria.api.responses.wire import InputItems, Response
from talaria.api.runs.events import decode_event, make_stream_name
from talaria.api.runs.run_store import END_STATES, read_options
from talaria.api.turns.session_pool import ApiOrigin, read_origin, require_session, write_origin
from talaria.contracts.store import Transaction
from talaria.contracts.stores.responses import ApiRun, StoredResponse
from talaria.contracts.values import SessionValue
from talaria.core.errors import TalariaError
from talaria.core.ids import SessionId, new_id
from talaria.http.errors import Problem, make_not_found
from talaria.sessions.branches import create_branch

CONTINUED_RESPONSE = SessionValue("continued_response", bool)  # by response
_ITEM_KINDS = ("msg", "mcp", "rs")
_PAGE = 1000
_decode_response = msgspec.json.Decoder(Response).decode


class ResponseRecord(Struct, frozen=True, kw_only=True):
    """The record of a response: itself, its input, and the last message of its session after it."""

    response: Response
    items: tuple[Raw, ...] = ()
    instructions: str = ""
    upto: int = 0


class NameTaken(TalariaError):
    """Another request has just created a conversation with this name, which should be continued."""


class ContinuedSession(Struct, frozen=True):
    """The session that a response continues, and its latest instructions."""

    session_id: SessionId
    instructions: str = ""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(ResponseRecord).decode


def new_response_id() -> str:
    """Return an id for a new response."""
    return f"resp_{new_id()}"


def make_conversation_key(name: str, caller: ApiCaller) -> str:
    """Return the storage key of a conversation name; each API key has its own names."""
    return f"{quote(caller.name, safe='')}/{name}"


def put_response(tx: Transaction, session_id: SessionId, record: ResponseRecord, conversation: str = "") -> None:
    """Store a response or its new state."""
    response = record.response
    tx.responses.put(
        StoredResponse(
            id=response.id,
            session_id=session_id,
            body=_encode(record).decode(),
            conversation=conversation,
            previous_id=response.previous_response_id,
        )
    )


def find_response(tx: Transaction, response_id: str, caller: ApiCaller) -> tuple[StoredResponse, ResponseRecord]:
    """Return a stored response that the caller may see, or raise a `Problem`."""
    stored = tx.responses.get(response_id)
    if stored is None:
        raise _make_missing(response_id)
    require_session(tx, stored.session_id, caller)
    return stored, _decode(stored.body)


def decode_record(stored: StoredResponse) -> ResponseRecord:
    """Return the decoded record."""
    return _decode(stored.body)


def continue_from(tx: Transaction, response_id: str, caller: ApiCaller) -> ContinuedSession:
    """Return the session of a response to continue: the same one, or a branch if it has already continued."""
    stored = tx.responses.get(response_id) if "\0" not in response_id else None
    if stored is None:
        raise _make_missing(response_id, param="previous_response_id", code="previous_response_not_found")
    session, record = require_session(tx, stored.session_id, caller), _decode(stored.body)
    if record.response.status in ("queued", "in_progress"):
        raise make_not_found(
            f"The response `{response_id[:64]}` isn't finished yet. Wait until it is.",
            param="previous_response_id",
            code="previous_response_not_found",
        )
    last = tx.messages.last(session.id, 1)
    is_at_end = bool(last) and last[-1].seq == record.upto
    if is_at_end and CONTINUED_RESPONSE.replace(tx, session.id, value=True, version=0, item=response_id):
        return ContinuedSession(session.id, record.instructions)
    return ContinuedSession(_branch_session(tx, session.id, record.upto, caller), record.instructions)


def find_conversation(tx: Transaction, name: str, caller: ApiCaller) -> ContinuedSession | None:
    """Return the session with this conversation name or id; ``None`` if there is none."""
    conversation = make_conversation_key(name, caller)
    session_id = tx.responses.conversation_session(conversation)
    if session_id is not None and tx.sessions.get(session_id) is not None:
        stored = tx.responses.latest_response(conversation)
        continued = continue_session(tx, session_id, caller)
        return structs.replace(continued, instructions=_decode(stored.body).instructions) if stored else continued
    return continue_session(tx, name, caller) if tx.sessions.get(SessionId(name)) is not None else None


def claim_name(tx: Transaction, conversation: str, session_id: SessionId) -> None:
    """Assign a name to a session created in this transaction; raises `NameTaken` if the name is in use."""
    former = tx.responses.conversation_session(conversation)  # read once: between two reads it may be assigned
    if former is not None and tx.sessions.get(former) is not None:
        raise NameTaken(f"Conversation {conversation} already exists.")
    if not tx.responses.name_conversation(conversation, session_id, former=former):
        raise NameTaken(f"Conversation {conversation} was just created by another request.")


def continue_session(tx: Transaction, session_id: str, caller: ApiCaller) -> ContinuedSession:
    """Return a session by id; raises a `Problem` if there is none that the caller may continue."""
    session = require_session(tx, session_id, caller)
    origin = read_origin(tx, session.id)
    return ContinuedSession(session.id, origin.instructions if origin else "")


def find_item(tx: Transaction, item_id: str, caller: ApiCaller) -> Raw | None:
    """Return an item of a response by id."""
    kind, _, rest = item_id.partition("_")
    name, _, _ = rest.rpartition("_")
    if kind not in _ITEM_KINDS or not name or "\0" in name:
        return None
    stored = tx.responses.get(f"resp_{name}")
    if stored is None:
        return None
    try:
        require_session(tx, stored.session_id, caller)
    except Problem:
        return None
    found = next((one for one in _decode(stored.body).response.output if one.id == item_id), None)
    return Raw(_encode(found)) if found is not None else None


def page_items(items: Sequence[Raw], order: Literal["asc", "desc"], after: str, limit: int) -> InputItems:
    """Return a page of a response's input items."""
    pairs = [(msgspec.json.decode(one, type=_ItemId).id, one) for one in items]
    if order == "desc":
        pairs.reverse()
    names = [name for name, _ in pairs]
    first = names.index(after) + 1 if after in names else 0
    selected = pairs[first : first + limit]
    return InputItems(
        data=[one for _, one in selected],
        first_id=selected[0][0] if selected else None,
        last_id=selected[-1][0] if selected else None,
        has_more=first + limit < len(pairs),
    )


class _ItemId(Struct):
    id: str


def _branch_session(tx: Transaction, session_id: SessionId, upto: int, caller: ApiCaller) -> SessionId:
    created = create_branch(tx, session_id, upto, "")
    origin = read_origin(tx, session_id) or ApiOrigin()
    write_origin(tx, created.id, ApiOrigin(caller.name, origin.instructions))
    return created.id


def _make_missing(response_id: str, param: str | None = None, code: str = "response_not_found") -> Problem:
    return make_not_found(f"There is no response `{response_id[:64]}`.", param=param, code=code)


def make_builder(run: ApiRun) -> ResponseBuilder:
    """Return the builder for a run's response before its first event."""
    order = read_options(run)
    return ResponseBuilder(_decode_response(order.response), thoughts=order.thoughts)


def build_response(tx: Transaction, run: ApiRun) -> Response:
    """Return the current response of a run."""
    builder, after = make_builder(run), 0
    while page := tx.events.after(make_stream_name(run.id), after, _PAGE):
        for event in page:
            builder.take(decode_event(event), event.at.timestamp())
        after = page[-1].seq
    return builder.build_response()


def get_current_response(tx: Transaction, stored: StoredResponse, record: ResponseRecord) -> Response:
    """Return the current state of a response."""
    if record.response.status not in ("queued", "in_progress"):
        return record.response
    run = tx.runs.get(stored.id)
    return build_response(tx, run) if run is not None else record.response


def store_ended_response(tx: Transaction, run: ApiRun) -> None:
    """Store the response of an ended run; other runs and deleted responses are skipped."""
    ended = tx.runs.get(run.id)
    if ended is None or ended.state not in END_STATES or read_options(ended).kind != "response":
        return
    stored = tx.responses.get(ended.id)
    if stored is None:
        return
    last = tx.messages.last(ended.session_id, 1)
    record = structs.replace(
        decode_record(stored), response=build_response(tx, ended), upto=last[-1].seq if last else 0
    )
    put_response(tx, ended.session_id, record, stored.conversation)
