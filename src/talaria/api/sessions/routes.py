"""The routes about conversations: reading needs the scope ``read``, changing ``admin``."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

from msgspec import structs

from talaria.api.conversations import Conversations, Origin, keep_origin, read_origin
from talaria.api.http import Reply, Request, json_reply
from talaria.api.keys import Caller
from talaria.api.problems import NO_WORDS, Problem, conflict, missing
from talaria.api.router import Route
from talaria.api.sessions.moving import move
from talaria.api.sessions.wire import (
    Deleted,
    ForkRequest,
    HitList,
    MessageList,
    MessagesQuery,
    MoveRequest,
    SearchQueryWords,
    SessionList,
    SessionsQuery,
    SessionView,
    hit_view,
    message_view,
    session_view,
)
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.search import SearchQuery
from talaria.contracts.stores.sessions import Session, SessionFilter
from talaria.core.ids import SessionId
from talaria.sessions.branching import branch
from talaria.sessions.holding import is_held, lane_of

_TAG = "sessions"
_TICK = timedelta(microseconds=1)
_BEGINNING = datetime.fromtimestamp(0, UTC)
Forget = Callable[[SessionId], None]


class SessionRoutes:
    """Conversations of every door.

    ``conversations`` are those that the API keeps open, ``networks`` tells where one may be moved to, and ``forget``
    removes what a conversation that is deleted has left behind outside of the store.
    """

    def __init__(
        self,
        store: Store,
        conversations: Sequence[Conversations],
        networks: Callable[[], Sequence[str]],
        forget: Forget,
    ) -> None:
        self._store = store
        self._conversations = conversations
        self._networks = networks
        self._forget = forget

    def routes(self) -> tuple[Route, ...]:
        """Return them."""
        one = "/v1/sessions/{session_id}"
        return (
            Route(method="GET", path="/v1/sessions", handler=self._list, summary="List conversations", scope="read",
                  asks=SessionsQuery, gives=SessionList, tag=_TAG),
            Route(method="GET", path="/v1/sessions/search", handler=self._search, summary="Search all messages",
                  scope="read", asks=SearchQueryWords, gives=HitList, tag=_TAG),
            Route(method="GET", path=one, handler=self._show, summary="Show a conversation", scope="read",
                  gives=SessionView, tag=_TAG),
            Route(method="DELETE", path=one, handler=self._delete, summary="Delete a conversation", scope="admin",
                  gives=Deleted, tag=_TAG),
            Route(method="GET", path=f"{one}/messages", handler=self._messages, summary="Read a conversation",
                  scope="read", asks=MessagesQuery, gives=MessageList, tag=_TAG),
            Route(method="POST", path=f"{one}/fork", handler=self._fork, summary="Branch off a conversation",
                  scope="admin", takes=ForkRequest, gives=SessionView, status=201, repeatable=True, tag=_TAG),
            Route(method="POST", path=f"{one}/move", handler=self._move, summary="Let it go on in a chat",
                  scope="admin", takes=MoveRequest, gives=SessionView, repeatable=True, tag=_TAG),
        )  # fmt: skip

    async def _list(self, request: Request) -> Reply:
        asked = request.asked(SessionsQuery)
        found = await self._store.read(lambda tx: _page(tx, asked))
        shown = found[: asked.limit]
        more = len(found) > len(shown)
        following = _cursor(shown[-1]) if more else None
        return json_reply(SessionList([session_view(one) for one in shown], more, following))

    async def _search(self, request: Request) -> Reply:
        asked = request.asked(SearchQueryWords)
        query = SearchQuery(
            text=asked.q,
            source=asked.source,
            role=asked.role,
            session_id=SessionId(asked.session_id) if asked.session_id else None,
            limit=asked.limit,
        )
        hits = await self._store.read(lambda tx: tx.search.find(query))
        return json_reply(HitList([hit_view(hit) for hit in hits]))

    async def _show(self, request: Request) -> Reply:
        return json_reply(await self._store.read(lambda tx: _shown(tx, request.parts["session_id"])))

    async def _messages(self, request: Request) -> Reply:
        asked, name = request.asked(MessagesQuery), request.parts["session_id"]
        found = await self._store.read(
            lambda tx: tx.messages.load(_found(tx, name).id, after=asked.after, limit=asked.limit + 1)
        )
        shown = found[: asked.limit]
        return json_reply(MessageList([message_view(one) for one in shown], len(found) > len(shown)))

    async def _fork(self, request: Request) -> Reply:
        wanted, name = request.read(ForkRequest), request.parts["session_id"]
        if "\0" in wanted.title:
            raise Problem(NO_WORDS, param="title", code="invalid_value")
        made = await self._store.write(lambda tx: _forked(tx, name, wanted, request.caller))
        return json_reply(session_view(made), status=201)

    async def _delete(self, request: Request) -> Reply:
        session = await self._store.write(lambda tx: _deleted(tx, request.parts["session_id"]))
        for conversations in self._conversations:
            conversations.forget(session.id)
        self._forget(session.id)
        return json_reply(Deleted(session.id))

    async def _move(self, request: Request) -> Reply:
        wanted, name = request.read(MoveRequest), request.parts["session_id"]
        session = await self._store.read(lambda tx: _found(tx, name))
        await move(self._store, session.id, wanted, self._networks())
        return json_reply(await self._store.read(lambda tx: _shown(tx, name)))


def _found(tx: Transaction, name: str) -> Session:
    session = tx.sessions.get(SessionId(name))
    if session is None:
        raise missing(f"There is no session `{name[:64]}`.", code="session_not_found")
    return session


def _shown(tx: Transaction, name: str) -> SessionView:
    session = _found(tx, name)
    bindings = tx.bindings.of_session(session.id)
    place = bindings[0].address if bindings else None
    handoff = tx.handoffs.get_handoff_state(session.id)
    return structs.replace(
        session_view(session),
        running=bool(tx.turns.find(session.id, running=True, limit=1)),
        place=":".join(filter(None, (place.platform, place.chat_id, place.thread_id))) if place else None,
        handoff=handoff["state"] if handoff else None,
        handoff_error=handoff["error"] if handoff else None,
    )


def _forked(tx: Transaction, name: str, wanted: ForkRequest, caller: Caller) -> Session:
    session = _found(tx, name)
    last = tx.messages.last(session.id, 1)
    upto = wanted.upto or (last[-1].seq if last else 0)
    if not last or upto > last[-1].seq:
        have = last[-1].seq if last else 0
        raise Problem(f"The session has {have} messages.", param="upto", code="invalid_value")
    made = branch(tx, session.id, upto, wanted.title)
    origin = read_origin(tx, session.id) or Origin()
    keep_origin(tx, made.id, Origin(caller.name, origin.instructions))
    return made


def _deleted(tx: Transaction, name: str) -> Session:
    session = _found(tx, name)
    if is_held(tx, lane_of(session.id)):
        raise conflict("A turn is running there: wait for its end or stop it, then delete it.", code="busy")
    tx.sessions.delete(session.id)
    return session


def _page(tx: Transaction, asked: SessionsQuery) -> list[Session]:
    """Return one conversation more than is asked for, where there are so many."""
    at, skipped = _read_cursor(asked.after)
    count = asked.limit + 1
    while True:
        wanted = SessionFilter(
            matching=asked.q.strip(),
            source=asked.source,
            archived=asked.archived,
            updated_before=at + _TICK if at else None,
            limit=count,
        )
        found = tx.sessions.find(wanted)
        place = next((number for number, one in enumerate(found) if one.id == skipped), None)
        rest = found[place + 1 :] if place is not None else [one for one in found if at is None or one.updated_at < at]
        if len(rest) > asked.limit or len(found) < count:
            return rest
        count *= 2


def _cursor(session: Session) -> str:
    return f"{(session.updated_at - _BEGINNING) // _TICK}.{session.id}"


def _read_cursor(text: str) -> tuple[datetime | None, str]:
    if not text:
        return None, ""
    number, dot, session_id = text.partition(".")
    if not dot or not number.isascii() or not number.isdecimal() or len(number) > 16:
        raise Problem("`after` is a `next` of the page before.", param="after", code="invalid_value")
    return _BEGINNING + int(number) * _TICK, session_id
