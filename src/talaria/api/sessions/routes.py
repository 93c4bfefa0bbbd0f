"""The routes about sessions and their wire types: reading needs the scope ``read``, changing ``admin``."""

from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

from msgspec import Meta, Struct, structs

from talaria.api.front_door import ApiCaller, ApiRequest
from talaria.api.turns.session_pool import ApiOrigin, SessionPool, read_origin, write_origin
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.sessions import Hit, SearchQuery, Session, SessionFilter, StoredMessage
from talaria.core.ids import SessionId
from talaria.core.messages import Part, Role, Usage
from talaria.handoff.service import HandoffRefused, HandoffRequest, RefusalCode, request_handoff, wait_for_handoff
from talaria.http.errors import NUL_REFUSED, Problem, make_conflict, make_not_found
from talaria.http.routing import Reply, Route, make_json_reply
from talaria.runtime.workers import is_leased, session_lease_name
from talaria.sessions.branches import create_branch

_ShortText = Annotated[str, Meta(max_length=1000)]
_TARGET_REFUSALS = (RefusalCode.UNKNOWN_PLATFORM, RefusalCode.NO_HOME_CHAT, RefusalCode.UNKNOWN_TARGET)
_REFUSALS = {
    RefusalCode.NO_NETWORK: "No chat network is set up. Run `talaria setup chat`.",
    RefusalCode.TURN_RUNNING: (
        "A turn is running in this session. Wait for it or stop it first, or set `now` to move it too."
    ),
    RefusalCode.NO_GATEWAY: "No gateway is running to take it over. Start one with `talaria gateway start`.",
}
_TAG = "sessions"
_TICK = timedelta(microseconds=1)
_EPOCH = datetime.fromtimestamp(0, UTC)
DeleteFiles = Callable[[SessionId], None]


class SessionsQuery(Struct, frozen=True):
    """Which sessions to list: ``q`` is a part of a title or the beginning of an id, ``after`` a ``next``."""

    limit: Annotated[int, Meta(ge=1, le=200)] = 20
    after: Annotated[str, Meta(pattern=r"^(\d{1,16}\.\w{1,64})?$")] = ""
    q: _ShortText = ""
    source: _ShortText = ""
    archived: bool = False


class MessagesQuery(Struct, frozen=True):
    """Which messages to show: those after this number."""

    after: Annotated[int, Meta(ge=0, le=2**31)] = 0
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class SessionSearchQuery(Struct, frozen=True):
    """A search: all words must occur; "quotes" make a phrase, ``word*`` a prefix, ``-word`` excludes."""

    q: Annotated[str, Meta(min_length=1, max_length=1000)]
    source: _ShortText = ""
    session_id: _ShortText = ""
    role: Role | None = None
    limit: Annotated[int, Meta(ge=1, le=100)] = 20


class SessionView(Struct, frozen=True, kw_only=True):
    """A session without its messages.

    ``address`` is that of its chat, as ``platform:chat[:thread]``; ``handoff`` is the state of a handoff.
    """

    id: str
    title: str
    source: str
    model: str
    created_at: datetime
    updated_at: datetime
    message_count: int
    parent_id: str | None
    parent_seq: int
    archived: bool
    usage: Usage
    object: Literal["session"] = "session"
    running: bool | None = None
    address: str | None = None
    handoff: str | None = None
    handoff_error: str | None = None


class SessionList(Struct, frozen=True):
    """A page of sessions, last used first; pass ``next`` as ``after`` for the following page."""

    data: list[SessionView]
    has_more: bool
    next: str | None
    object: Literal["list"] = "list"


class MessageView(Struct, frozen=True):
    """A message and its number in the session."""

    seq: int
    role: Role
    parts: tuple[Part, ...]
    text: str
    at: datetime
    author: str
    model: str


class MessageList(Struct, frozen=True):
    """A page of messages, oldest first."""

    data: list[MessageView]
    has_more: bool
    object: Literal["list"] = "list"


class HitView(Struct, frozen=True, kw_only=True):
    """A match; ``snippet`` has the matched words between ``[`` and ``]``."""

    session_id: str
    session_title: str
    seq: int
    role: Role
    at: datetime
    snippet: str


class HitList(Struct, frozen=True):
    """Matches, best first."""

    data: list[HitView]
    object: Literal["list"] = "list"


class ForkRequest(Struct, frozen=True):
    """Start of a branch: after message ``upto``, by default after the last one."""

    upto: Annotated[int, Meta(ge=1, le=2**31)] | None = None
    title: Annotated[str, Meta(max_length=200)] = ""


class MoveRequest(Struct, frozen=True):
    """The target of a handoff, ``platform`` or ``platform:chat``, and how long to wait for it.

    With ``now`` it moves at once, in the middle of a turn if one is running, and the agent isn't informed.
    """

    to: Annotated[str, Meta(min_length=1, max_length=500)]
    now: bool = False
    timeout_seconds: Annotated[float, Meta(ge=0, le=120)] = 60.0


class DeletedSession(Struct, frozen=True):
    """A deleted session."""

    id: str
    object: Literal["session.deleted"] = "session.deleted"
    deleted: bool = True


def to_session_view(session: Session) -> SessionView:
    """Return a session for clients."""
    return SessionView(
        id=session.id,
        title=session.title,
        source=session.source,
        model=session.model,
        created_at=session.created_at,
        updated_at=session.updated_at,
        message_count=session.message_count,
        parent_id=session.parent_id,
        parent_seq=session.parent_seq,
        archived=session.archived_at is not None,
        usage=session.usage,
    )


def to_message_view(stored: StoredMessage) -> MessageView:
    """Return a message for clients."""
    message = stored.message
    return MessageView(stored.seq, message.role, message.parts, message.text, message.at, message.author, message.model)


def to_hit_view(hit: Hit) -> HitView:
    """Return a match for clients."""
    return HitView(
        session_id=hit.session_id,
        session_title=hit.session_title,
        seq=hit.seq,
        role=hit.role,
        at=hit.at,
        snippet=hit.snippet,
    )


async def move_session(store: Store, session_id: SessionId, move: MoveRequest, networks: Collection[str]) -> None:
    """Request a handoff and wait until it is completed; raises a `Problem` if it is refused, fails or times out."""
    try:
        request = HandoffRequest(session_id, move.to, immediate=move.now)
        await request_handoff(store, request, dict.fromkeys(networks, True))
    except HandoffRefused as error:
        raise _to_problem(error) from error
    state = await wait_for_handoff(store, session_id, move.timeout_seconds)
    if state["state"] != "completed":
        problem = state["error"] or "it couldn't be moved"
        raise make_conflict(f"The session was not moved: {problem}.", code="not_moved")


class SessionRoutes:
    """Sessions of all surfaces.

    ``session_pools`` are the API's open sessions, ``networks`` are the possible targets of a handoff, and ``forget``
    deletes the files of a deleted session outside of the store.
    """

    def __init__(
        self,
        store: Store,
        session_pools: Sequence[SessionPool],
        networks: Callable[[], Sequence[str]],
        forget: DeleteFiles,
    ) -> None:
        self._store = store
        self._session_pools = session_pools
        self._networks = networks
        self._forget = forget

    def routes(self) -> tuple[Route, ...]:
        """Return the routes."""
        one = "/v1/sessions/{session_id}"
        return (
            Route(method="GET", path="/v1/sessions", handler=self._list, summary="List sessions", scope="read",
                  asks=SessionsQuery, reply_type=SessionList, tag=_TAG),
            Route(method="GET", path="/v1/sessions/search", handler=self._search, summary="Search all messages",
                  scope="read", asks=SessionSearchQuery, reply_type=HitList, tag=_TAG),
            Route(method="GET", path=one, handler=self._show, summary="Retrieve a session", scope="read",
                  reply_type=SessionView, tag=_TAG),
            Route(method="DELETE", path=one, handler=self._delete, summary="Delete a session", scope="admin",
                  reply_type=DeletedSession, tag=_TAG),
            Route(method="GET", path=f"{one}/messages", handler=self._list_messages,
                  summary="List a session's messages", scope="read", asks=MessagesQuery,
                  reply_type=MessageList, tag=_TAG),
            Route(method="POST", path=f"{one}/fork", handler=self._fork, summary="Branch a session",
                  scope="admin", takes=ForkRequest, reply_type=SessionView, status=201, repeatable=True, tag=_TAG),
            Route(method="POST", path=f"{one}/move", handler=self._move, summary="Hand off a session to a chat",
                  scope="admin", takes=MoveRequest, reply_type=SessionView, repeatable=True, tag=_TAG),
        )  # fmt: skip

    async def _list(self, request: ApiRequest) -> Reply:
        asked = request.parse_query(SessionsQuery)
        found = await self._store.read(lambda tx: _find_page(tx, asked))
        shown = found[: asked.limit]
        more = len(found) > len(shown)
        next_cursor = _make_cursor(shown[-1]) if more else None
        return make_json_reply(SessionList([to_session_view(one) for one in shown], more, next_cursor))

    async def _search(self, request: ApiRequest) -> Reply:
        asked = request.parse_query(SessionSearchQuery)
        query = SearchQuery(
            text=asked.q,
            source=asked.source,
            role=asked.role,
            session_id=SessionId(asked.session_id) if asked.session_id else None,
            limit=asked.limit,
        )
        hits = await self._store.read(lambda tx: tx.search.find(query))
        return make_json_reply(HitList([to_hit_view(hit) for hit in hits]))

    async def _show(self, request: ApiRequest) -> Reply:
        return make_json_reply(await self._store.read(lambda tx: _build_view(tx, request.parts["session_id"])))

    async def _list_messages(self, request: ApiRequest) -> Reply:
        asked, name = request.parse_query(MessagesQuery), request.parts["session_id"]
        found = await self._store.read(
            lambda tx: tx.messages.load(_require_session(tx, name).id, after=asked.after, limit=asked.limit + 1)
        )
        shown = found[: asked.limit]
        return make_json_reply(MessageList([to_message_view(one) for one in shown], len(found) > len(shown)))

    async def _fork(self, request: ApiRequest) -> Reply:
        fork_request, name = request.read(ForkRequest), request.parts["session_id"]
        if "\0" in fork_request.title:
            raise Problem(NUL_REFUSED, param="title", code="invalid_value")
        fork = await self._store.write(lambda tx: _fork_session(tx, name, fork_request, request.caller))
        return make_json_reply(to_session_view(fork), status=201)

    async def _delete(self, request: ApiRequest) -> Reply:
        session = await self._store.write(lambda tx: _delete_session(tx, request.parts["session_id"]))
        for session_pools in self._session_pools:
            session_pools.forget(session.id)
        self._forget(session.id)
        return make_json_reply(DeletedSession(session.id))

    async def _move(self, request: ApiRequest) -> Reply:
        move, name = request.read(MoveRequest), request.parts["session_id"]
        session = await self._store.read(lambda tx: _require_session(tx, name))
        await move_session(self._store, session.id, move, self._networks())
        return make_json_reply(await self._store.read(lambda tx: _build_view(tx, name)))


def _to_problem(refused: HandoffRefused) -> Problem:
    if refused.code in _TARGET_REFUSALS:
        return Problem(str(refused), param="to", code="unknown_target")
    return make_conflict(_REFUSALS.get(refused.code, str(refused)), code=refused.code.value)


def _require_session(tx: Transaction, name: str) -> Session:
    session = tx.sessions.get(SessionId(name))
    if session is None:
        raise make_not_found(f"There is no session `{name[:64]}`.", code="session_not_found")
    return session


def _build_view(tx: Transaction, name: str) -> SessionView:
    session = _require_session(tx, name)
    bindings = tx.bindings.of_session(session.id)
    address = bindings[0].address if bindings else None
    handoff = tx.handoffs.get_handoff_state(session.id)
    return structs.replace(
        to_session_view(session),
        running=bool(tx.turns.find(session.id, running=True, limit=1)),
        address=":".join(filter(None, (address.platform, address.chat_id, address.thread_id))) if address else None,
        handoff=handoff["state"] if handoff else None,
        handoff_error=handoff["error"] if handoff else None,
    )


def _fork_session(tx: Transaction, name: str, fork_request: ForkRequest, caller: ApiCaller) -> Session:
    session = _require_session(tx, name)
    last = tx.messages.last(session.id, 1)
    upto = fork_request.upto or (last[-1].seq if last else 0)
    if not last or upto > last[-1].seq:
        message_count = last[-1].seq if last else 0
        raise Problem(f"The session has {message_count} messages.", param="upto", code="invalid_value")
    fork = create_branch(tx, session.id, upto, fork_request.title)
    origin = read_origin(tx, session.id) or ApiOrigin()
    write_origin(tx, fork.id, ApiOrigin(caller.name, origin.instructions))
    return fork


def _delete_session(tx: Transaction, name: str) -> Session:
    session = _require_session(tx, name)
    if is_leased(tx, session_lease_name(session.id)):
        raise make_conflict(
            "A turn is running in this session. Wait for it or stop it, then delete the session.", code="busy"
        )
    tx.sessions.delete(session.id)
    return session


def _find_page(tx: Transaction, asked: SessionsQuery) -> list[Session]:
    """Return one session more than requested, if there are so many."""
    at, skipped = _read_cursor(asked.after)
    count = asked.limit + 1
    while True:
        session_filter = SessionFilter(
            matching=asked.q.strip(),
            source=asked.source,
            archived=asked.archived,
            updated_before=at + _TICK if at else None,
            limit=count,
        )
        found = tx.sessions.find(session_filter)
        position = next((number for number, one in enumerate(found) if one.id == skipped), None)
        rest = (
            found[position + 1 :]
            if position is not None
            else [one for one in found if at is None or one.updated_at < at]
        )
        if len(rest) > asked.limit or len(found) < count:
            return rest
        count *= 2


def _make_cursor(session: Session) -> str:
    return f"{(session.updated_at - _EPOCH) // _TICK}.{session.id}"


def _read_cursor(text: str) -> tuple[datetime | None, str]:
    if not text:
        return None, ""
    number, dot, session_id = text.partition(".")
    if not dot or not number.isascii() or not number.isdecimal() or len(number) > 16:
        raise Problem("`after` must be the `next` value of the previous page.", param="after", code="invalid_value")
    return _EPOCH + int(number) * _TICK, session_id
