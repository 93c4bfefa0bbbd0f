"""Responses in the store: found again, gone on from, and taken for the item that a client refers to."""

from collections.abc import Sequence
from typing import Literal
from urllib.parse import quote

import msgspec
from msgspec import Raw, Struct, structs

from talaria.api.conversations import Origin, entered, keep_origin, read_origin
from talaria.api.keys import Caller
from talaria.api.problems import Problem, missing
from talaria.api.responses.wire import InputItems, Response
from talaria.contracts.store import Transaction
from talaria.contracts.stores.responses import StoredResponse
from talaria.core.errors import TalariaError
from talaria.core.ids import SessionId, new_id
from talaria.sessions.branching import branch

_GONE_ON = "api-gone-on:"
_NAMED = "api-conversation:"
_MINE = ("msg", "mcp", "rs")


class Kept(Struct, frozen=True, kw_only=True):
    """What is kept of a response: itself, what was said, and the last message of its conversation behind it."""

    response: Response
    items: tuple[Raw, ...] = ()
    instructions: str = ""
    upto: int = 0


class NameTaken(TalariaError):
    """Somebody else has begun a conversation of this name meanwhile: that one is to be gone on with."""


class Continued(Struct, frozen=True):
    """The conversation that a response goes on with, and what the agent was told in it last."""

    session_id: SessionId
    instructions: str = ""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Kept).decode


def new_response_id() -> str:
    """Return an id for a new response."""
    return f"resp_{new_id()}"


def conversation_key(name: str, caller: Caller) -> str:
    """Return under which name a conversation is kept: each key has its own."""
    return f"{quote(caller.name, safe='')}/{name}"


def put(tx: Transaction, session_id: SessionId, kept: Kept, conversation: str = "") -> None:
    """Keep a response, or what has become of it."""
    response = kept.response
    tx.responses.put(
        StoredResponse(
            id=response.id,
            session_id=session_id,
            body=_encode(kept).decode(),
            conversation=conversation,
            previous_id=response.previous_response_id,
        )
    )


def find(tx: Transaction, response_id: str, caller: Caller) -> tuple[StoredResponse, Kept]:
    """Return a response that is kept and that the caller may see, or raise a `Problem`."""
    stored = tx.responses.get(response_id)
    if stored is None:
        raise _missing(response_id)
    entered(tx, stored.session_id, caller)
    return stored, _decode(stored.body)


def read(stored: StoredResponse) -> Kept:
    """Return what is kept."""
    return _decode(stored.body)


def go_on_from(tx: Transaction, response_id: str, caller: Caller) -> Continued:
    """Return the conversation behind a response, to go on with: it itself, or a branch where it went on already."""
    stored = tx.responses.get(response_id) if "\0" not in response_id else None
    if stored is None:
        raise _missing(response_id, param="previous_response_id", code="previous_response_not_found")
    session, kept = entered(tx, stored.session_id, caller), _decode(stored.body)
    if kept.response.status in ("queued", "in_progress"):
        raise missing(
            f"The response `{response_id[:64]}` is not there yet: wait until it is.",
            param="previous_response_id",
            code="previous_response_not_found",
        )
    last = tx.messages.last(session.id, 1)
    at_its_end = bool(last) and last[-1].seq == kept.upto
    if at_its_end and tx.state.replace(f"{_GONE_ON}{response_id}:{session.id}", "", version=0):
        return Continued(session.id, kept.instructions)
    return Continued(_branched(tx, session.id, kept.upto, caller), kept.instructions)


def named(tx: Transaction, name: str, caller: Caller) -> Continued | None:
    """Return the conversation of this name, or with this id; ``None`` where there is none."""
    conversation = conversation_key(name, caller)
    entry = tx.state.get(_NAMED + conversation)
    if entry is not None and tx.sessions.get(SessionId(entry.value)) is not None:
        stored = tx.responses.newest_in(conversation)
        continued = of_session(tx, entry.value, caller)
        return structs.replace(continued, instructions=_decode(stored.body).instructions) if stored else continued
    return of_session(tx, name, caller) if tx.sessions.get(SessionId(name)) is not None else None


def give_name(tx: Transaction, conversation: str, session_id: SessionId) -> None:
    """Let a name stand for a conversation that begins in this transaction; raises `NameTaken` where it has one."""
    former = tx.state.get(_NAMED + conversation)  # asked once: between two looks somebody may give it
    if former is not None and tx.sessions.get(SessionId(former.value)) is not None:
        raise NameTaken(f"There is a conversation {conversation} already.")
    if not tx.state.replace(_NAMED + conversation, session_id, version=former.version if former else 0):
        raise NameTaken(f"There is a conversation {conversation} since this moment.")


def of_session(tx: Transaction, session_id: str, caller: Caller) -> Continued:
    """Return a conversation by its id; raises a `Problem` where there is none that the caller may go on with."""
    session = entered(tx, session_id, caller)
    origin = read_origin(tx, session.id)
    return Continued(session.id, origin.instructions if origin else "")


def item(tx: Transaction, item_id: str, caller: Caller) -> Raw | None:
    """Return an item that a response had under this id."""
    kind, _, rest = item_id.partition("_")
    name, _, _ = rest.rpartition("_")
    if kind not in _MINE or not name or "\0" in name:
        return None
    stored = tx.responses.get(f"resp_{name}")
    if stored is None:
        return None
    try:
        entered(tx, stored.session_id, caller)
    except Problem:
        return None
    found = next((one for one in _decode(stored.body).response.output if one.id == item_id), None)
    return Raw(_encode(found)) if found is not None else None


def page(items: Sequence[Raw], order: Literal["asc", "desc"], after: str, limit: int) -> InputItems:
    """Return a part of what was said in a response."""
    pairs = [(msgspec.json.decode(one, type=_Named).id, one) for one in items]
    if order == "desc":
        pairs.reverse()
    names = [name for name, _ in pairs]
    first = names.index(after) + 1 if after in names else 0
    shown = pairs[first : first + limit]
    return InputItems(
        data=[one for _, one in shown],
        first_id=shown[0][0] if shown else None,
        last_id=shown[-1][0] if shown else None,
        has_more=first + limit < len(pairs),
    )


class _Named(Struct):
    id: str


def _branched(tx: Transaction, session_id: SessionId, upto: int, caller: Caller) -> SessionId:
    made = branch(tx, session_id, upto, "")
    origin = read_origin(tx, session_id) or Origin()
    keep_origin(tx, made.id, Origin(caller.name, origin.instructions))
    return made.id


def _missing(response_id: str, param: str | None = None, code: str = "response_not_found") -> Problem:
    return missing(f"There is no response `{response_id[:64]}`.", param=param, code=code)
