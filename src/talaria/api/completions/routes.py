"""`/v1/chat/completions`: one answer, whole or streamed."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial

from talaria.api.completions.incoming import (
    CompletionInput,
    check_supported,
    compute_fingerprint,
    convert_history,
    convert_message,
    split_messages,
)
from talaria.api.completions.outgoing import ChunkEncoder, CompletionCollector
from talaria.api.completions.wire import ChatCompletion, Chunk, CreateCompletion
from talaria.api.front_door import ApiCaller, ApiRequest
from talaria.api.images import ImageStore
from talaria.api.meta.models import ModelNames
from talaria.api.turns.session_pool import SESSION_HEADER, SessionPool, require_session
from talaria.api.turns.turn import ApiTurn, TurnRequest
from talaria.contracts.store import Transaction
from talaria.contracts.turn_listener import TurnResult
from talaria.contracts.values import SessionValue
from talaria.core.errors import TalariaError
from talaria.core.events import ToolAnswered, ToolCalled, TurnAnswered
from talaria.core.ids import SessionId, new_session_id
from talaria.http.errors import Problem, to_problem
from talaria.http.messages import Reply, make_event_reply, make_json_reply
from talaria.http.router import Route

EVENTS_HEADER = "x-talaria-events"
HISTORY_DIGEST = SessionValue("history_digest", int)  # number of messages, by digest of the history


class CompletionRoutes:
    """The route for chat completions."""

    def __init__(self, session_pool: SessionPool, models: ModelNames, image_store: ImageStore) -> None:
        self._session_pool = session_pool
        self._store = session_pool.application.store
        self._models = models
        self._image_store = image_store

    def routes(self) -> tuple[Route, ...]:
        """Return the route."""
        return (
            Route(
                method="POST",
                path="/v1/chat/completions",
                handler=self._create,
                summary="Create a chat completion",
                scope="chat",
                takes=CreateCompletion,
                reply_type=ChatCompletion,
                events=Chunk,
                repeatable=True,
                used_headers=(SESSION_HEADER, EVENTS_HEADER),
                tag="chat completions",
            ),
        )

    async def _create(self, request: ApiRequest) -> Reply:
        body = request.read(CreateCompletion)
        check_supported(body)
        parsed = split_messages(body.messages)
        turn = ApiTurn(self._session_pool, await self._build_request(request, body, parsed), request.caller)
        headers = {SESSION_HEADER: turn.session_id}
        answer = CompletionCollector()
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(turn)
            if body.stream:
                counting = body.stream_options is not None and bool(body.stream_options.include_usage)
                chunks = ChunkEncoder(body.model, counting=counting)
                tool_events = request.headers.get(EVENTS_HEADER, "")
                return make_event_reply(_CompletionStream(turn, chunks, tool_events, stack.pop_all()), headers=headers)
            async for event in turn:
                answer.take(event)
        problem = answer.problem
        if problem is not None:
            problem.headers |= headers
            raise problem
        return make_json_reply(answer.completion(body.model), headers=headers)

    async def _build_request(self, request: ApiRequest, body: CreateCompletion, parsed: CompletionInput) -> TurnRequest:
        """Return the turn to run: in the named session, in the one with this history, or in a new one."""
        caller, model = request.caller.name, await self._models.resolve(body.model)
        named = request.headers.get(SESSION_HEADER, "")
        if named:  # before anything is stored in its folder
            await self._store.read(lambda tx: require_session(tx, named, request.caller))
        session_id = named or await self._find_session(request.caller, parsed)
        target_id = SessionId(session_id) if session_id else new_session_id()
        past_messages = () if session_id else await convert_history(parsed.history, self._image_store, target_id)
        heard = CompletionCollector()
        store_fingerprint = partial(
            _store_fingerprint, caller=caller, parsed=parsed, heard=heard if body.stream else None
        )
        return TurnRequest(
            message=await convert_message(parsed.last, self._image_store, target_id),
            session_id=session_id,
            new_id=target_id,
            instructions=parsed.instructions,
            history=past_messages,
            model=model,
            ended=None if named else store_fingerprint,
            heard=heard.take if body.stream else None,
        )

    async def _find_session(self, caller: ApiCaller, parsed: CompletionInput) -> str:
        """Return the session whose transcript is the history of the request, if there is one.

        It is found once: a second client that continues from the same point starts a branch.
        """
        if not parsed.history:
            return ""
        digest = compute_fingerprint(caller.name, parsed.instructions, parsed.history)
        if not await self._store.read(lambda tx: HISTORY_DIGEST.with_item(tx, digest)):
            return ""
        return await self._store.write(lambda tx: _claim_session(tx, digest, caller))


class _CompletionStream:
    """Implements `Stream`; ``tool_events`` selects the events of tools, and closing ``stack`` leaves the turn."""

    def __init__(self, turn: ApiTurn, chunks: ChunkEncoder, tool_events: str, stack: AsyncExitStack) -> None:
        self._turn = turn
        self._stack = stack
        self._answer = CompletionCollector()
        self._chunks = chunks
        self._hides_tools = tool_events == "none"
        self._names_tool_events = tool_events == "tools"

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._chunks.begin()
        try:
            async for event in self._turn:
                new = self._answer.take(event)
                if new:
                    yield self._chunks.words(new)
                elif isinstance(event, ToolCalled | ToolAnswered) and not self._hides_tools:
                    yield self._chunks.news(event, named=self._names_tool_events)
            last = self._chunks.end(self._answer)
        except TalariaError as error:
            last = self._chunks.broken(to_problem(error))
        yield last

    @property
    def is_whole(self) -> bool:
        return self._answer.end is not None

    async def close(self) -> None:
        await self._stack.aclose()


def _claim_session(tx: Transaction, digest: str, caller: ApiCaller) -> str:
    for session_id, count in HISTORY_DIGEST.with_item(tx, digest):
        if not HISTORY_DIGEST.delete(tx, session_id, digest):
            continue
        try:
            session = require_session(tx, session_id, caller)
        except Problem:  # the key had other rights when it was started
            continue
        if session.message_count == count:
            return session_id
    return ""


def _store_fingerprint(
    tx: Transaction, result: TurnResult, *, caller: str, parsed: CompletionInput, heard: CompletionCollector | None
) -> None:
    """Store the fingerprint by which the next request, with this history, finds the session."""
    session = tx.sessions.get(result.session_id)
    if not isinstance(result.end, TurnAnswered) or session is None:
        return
    reply = heard.text if heard is not None else result.end.text
    digest = compute_fingerprint(caller, parsed.instructions, (*parsed.history, parsed.last), reply)
    for session_id, _ in HISTORY_DIGEST.with_item(tx, digest):  # the latest of sessions with the same history is found
        HISTORY_DIGEST.delete(tx, session_id, digest)
    HISTORY_DIGEST.write(tx, result.session_id, session.message_count, digest)
