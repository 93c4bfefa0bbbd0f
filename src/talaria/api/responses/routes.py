"""The routes about responses: create, retrieve, cancel, delete, list input."""

import asyncio
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from functools import partial
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct, structs

from talaria.api.files import ImageStore
from talaria.api.front_door import ApiCaller, ApiRequest
from talaria.api.input_items import make_instruction, read_input, store_images
from talaria.api.meta import AGENT_MODEL, ModelNames
from talaria.api.responses import response_store
from talaria.api.responses.recorder import (
    INTERRUPTED,
    ResponseRecorder,
    ResponseTracker,
    RunResponseStream,
    TurnResponseStream,
)
from talaria.api.responses.response_store import (
    ContinuedSession,
    ResponseRecord,
    get_current_response,
    make_builder,
    store_ended_response,
)
from talaria.api.responses.wire import (
    ConversationReference,
    DeletedResponse,
    InputItems,
    ReasoningOptions,
    Response,
    ResponseEvent,
    ResponseRequest,
)
from talaria.api.runs.followers import RunFollowers
from talaria.api.runs.routes import stop_and_wait
from talaria.api.runs.run_store import RunOptions, RunStart, begin_run, queue_history
from talaria.api.turns.session_pool import SESSION_HEADER, SessionPool
from talaria.api.turns.turn import ApiTurn, TurnRequest
from talaria.contracts.store import Transaction
from talaria.contracts.turns import TurnResult
from talaria.core.errors import Busy
from talaria.core.ids import SessionId, new_session_id
from talaria.core.messages import Message
from talaria.http.errors import NUL_REFUSED, Problem, make_server_problem, make_unsupported
from talaria.http.routing import Reply, Route, make_event_reply, make_json_reply
from talaria.runtime.workers import is_leased, session_lease_name

_TAG = "responses"
_POLL_INTERVAL = 0.05
_MAX_NAME = 512
_BAD_GATEWAY, _UNAVAILABLE = 502, 503
_TOOLS = "The agent uses its own tools and can't call a client's. Remove `tools`."

_encode = msgspec.json.Encoder().encode


class ResponseQuery(Struct, frozen=True):
    """Query of a response: stream it or not, and after which number."""

    stream: bool = False
    starting_after: Annotated[int, Meta(ge=0, le=2**53)] | None = None


class ItemsQuery(Struct, frozen=True):
    """A page of input items."""

    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    order: Literal["asc", "desc"] = "desc"
    after: str = ""


class _Task(Struct, frozen=True, kw_only=True):
    """A response to create: in the session ``session_id``, or in a new one with that id."""

    record: ResponseRecord
    message: Message
    history: tuple[Message, ...]
    model: str
    session_id: SessionId
    new: bool
    conversation: str
    thoughts: bool


class ResponseRoutes:
    """Responses over sessions without a person to ask."""

    def __init__(
        self, session_pool: SessionPool, followers: RunFollowers, models: ModelNames, image_store: ImageStore
    ) -> None:
        self._session_pool = session_pool
        self._followers = followers
        self._store = session_pool.application.store
        self._models = models
        self._image_store = image_store

    def routes(self) -> tuple[Route, ...]:
        """Return the routes."""
        one = "/v1/responses/{response_id}"
        return (
            Route(method="POST", path="/v1/responses", handler=self._create, summary="Create a response",
                  takes=ResponseRequest, reply_type=Response, events=ResponseEvent, repeatable=True,
                  used_headers=(SESSION_HEADER,),
                  scope="chat", tag=_TAG),
            Route(method="GET", path=one, handler=self._show, summary="Retrieve a response",
                  asks=ResponseQuery, reply_type=Response, events=ResponseEvent, scope="chat", tag=_TAG),
            Route(method="DELETE", path=one, handler=self._delete, summary="Delete a response",
                  reply_type=DeletedResponse, scope="chat", tag=_TAG),
            Route(method="POST", path=f"{one}/cancel", handler=self._cancel, summary="Cancel a response",
                  reply_type=Response, repeatable=True, scope="chat", tag=_TAG),
            Route(method="GET", path=f"{one}/input_items", handler=self._list_items, summary="List input items",
                  asks=ItemsQuery, reply_type=InputItems, scope="chat", tag=_TAG),
        )  # fmt: skip

    async def _create(self, request: ApiRequest) -> Reply:
        body = request.read(ResponseRequest)
        _check(body)
        while True:
            try:
                return await self._make_reply(body, request)
            except response_store.NameTaken:  # created just now by another request, and found this time
                continue
            except Busy:
                if not (name := _get_conversation(body)):
                    raise
                await self._wait_until_free(name, request.caller)

    async def _wait_until_free(self, name: str, caller: ApiCaller) -> None:
        """Wait until no other server is running a turn of a session."""
        while await self._store.read(lambda tx: _is_busy(tx, name, caller)):
            await asyncio.sleep(_POLL_INTERVAL)
            self._session_pool.check_open()

    async def _make_reply(self, body: ResponseRequest, request: ApiRequest) -> Reply:
        task = await self._build_task(body, request.headers.get(SESSION_HEADER, ""), request.caller)
        headers = {SESSION_HEADER: task.session_id}
        if body.background:
            return await self._queue(task, request.caller, headers, streamed=bool(body.stream))
        recorder = ResponseRecorder(task.record.response, thoughts=task.thoughts)
        tracker = ResponseTracker(task.record.response, thoughts=task.thoughts)
        turn = ApiTurn(self._session_pool, self._build_request(task, recorder), request.caller)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(turn)
            if body.stream:
                return make_event_reply(TurnResponseStream(turn, tracker, recorder, stack.pop_all()), headers=headers)
            async for event in turn:
                tracker.take(event, recorder.ended_at or time.time())
        return make_json_reply(_require_answer(tracker.response), headers=headers)

    async def _build_task(self, body: ResponseRequest, session: str, caller: ApiCaller) -> _Task:
        """Return the task; a session to continue is found or branched here."""
        model = await self._models.resolve(body.model or "")
        parsed = await self._store.read(
            lambda tx: read_input(body.input, lambda item_id: response_store.find_item(tx, item_id, caller))
        )
        continued = await self._find_continued(body, session, caller)
        target_id = continued.session_id if continued else new_session_id()
        *history, message = await store_images((*parsed.history, parsed.message), self._image_store, target_id)
        instruction_text = "\n\n".join(filter(None, (body.instructions, parsed.instructions)))
        if continued is not None and instruction_text and instruction_text != continued.instructions:
            history.insert(0, make_instruction(instruction_text))
        name = _get_conversation(body)
        return _Task(
            record=ResponseRecord(
                response=_make_response(body, name),
                items=parsed.items,
                instructions=instruction_text or (continued.instructions if continued else ""),
            ),
            message=message,
            history=tuple(history),
            model=model,
            session_id=target_id,
            new=continued is None,
            conversation=response_store.make_conversation_key(name, caller) if name else "",
            thoughts=_wants_thoughts(body.reasoning),
        )

    async def _find_continued(self, body: ResponseRequest, session: str, caller: ApiCaller) -> ContinuedSession | None:
        if body.previous_response_id:
            previous = body.previous_response_id
            return await self._store.write(lambda tx: response_store.continue_from(tx, previous, caller))
        if name := _get_conversation(body):
            return await self._store.read(lambda tx: response_store.find_conversation(tx, name, caller))
        return (
            await self._store.read(lambda tx: response_store.continue_session(tx, session, caller)) if session else None
        )

    def _build_request(self, task: _Task, recorder: ResponseRecorder) -> TurnRequest:
        return TurnRequest(
            message=task.message,
            session_id="" if task.new else task.session_id,
            new_id=task.session_id,
            instructions=task.record.instructions,
            history=task.history if task.new else (),
            model=task.model,
            begun=partial(_on_turn_start, task=task),
            ended=partial(_store_response, task=task, recorder=recorder) if task.record.response.store else None,
            on_event=recorder.handle_event,
        )

    async def _queue(self, task: _Task, caller: ApiCaller, headers: Mapping[str, str], *, streamed: bool) -> Reply:
        """Queue a background response."""
        response = structs.replace(task.record.response, status="queued")
        start = RunStart(
            message=task.message,
            order=RunOptions(
                kind="response",
                model=task.model,
                response=_encode(response).decode(),
                thoughts=task.thoughts,
            ),
            session_id="" if task.new else task.session_id,
            new_id=task.session_id,
            instructions=task.record.instructions,
            history=task.history,
        )

        def begin(tx: Transaction) -> None:
            run = begin_run(tx, response.id, start, caller)
            _claim_name(tx, run.session_id, task)
            response_store.put_response(
                tx, run.session_id, structs.replace(task.record, response=response), task.conversation
            )

        await self._store.write(begin)
        if not streamed:
            return make_json_reply(response, headers=headers)
        return await self._stream_run(response.id, -1, headers)

    async def _stream_run(self, response_id: str, after: int, headers: Mapping[str, str]) -> Reply:
        run = await self._store.read(lambda tx: tx.runs.get(response_id))
        if run is None:
            raise Problem(
                "Only a response with `background` can be streamed again.", param="stream", code="not_streamable"
            )
        return make_event_reply(
            RunResponseStream(self._followers.follow(run.id), make_builder(run), after), headers=headers
        )

    async def _show(self, request: ApiRequest) -> Reply:
        asked, name = request.parse_query(ResponseQuery), request.parts["response_id"]
        stored, record = await self._store.read(lambda tx: response_store.find_response(tx, name, request.caller))
        headers = {SESSION_HEADER: stored.session_id}
        if asked.stream:
            after = -1 if asked.starting_after is None else asked.starting_after
            return await self._stream_run(name, after, headers)
        return make_json_reply(
            await self._store.read(lambda tx: get_current_response(tx, stored, record)), headers=headers
        )

    async def _delete(self, request: ApiRequest) -> Reply:
        name = request.parts["response_id"]
        await self._store.read(lambda tx: response_store.find_response(tx, name, request.caller))
        run = await self._store.read(lambda tx: tx.runs.get(name))
        if run is not None:
            await stop_and_wait(self._store, run)
        await self._store.write(lambda tx: tx.responses.delete(name))
        return make_json_reply(DeletedResponse(name))

    async def _cancel(self, request: ApiRequest) -> Reply:
        name = request.parts["response_id"]
        await self._store.read(lambda tx: response_store.find_response(tx, name, request.caller))
        run = await self._store.read(lambda tx: tx.runs.get(name))
        if run is None:
            raise Problem("Only a response with `background` can be cancelled.", code="not_cancellable")
        await stop_and_wait(self._store, run)
        await self._store.write(lambda tx: store_ended_response(tx, run))
        stored, record = await self._store.read(lambda tx: response_store.find_response(tx, name, request.caller))
        return make_json_reply(await self._store.read(lambda tx: get_current_response(tx, stored, record)))

    async def _list_items(self, request: ApiRequest) -> Reply:
        asked, name = request.parse_query(ItemsQuery), request.parts["response_id"]
        _, record = await self._store.read(lambda tx: response_store.find_response(tx, name, request.caller))
        return make_json_reply(response_store.page_items(record.items, asked.order, asked.after, asked.limit))


def _on_turn_start(tx: Transaction, session_id: SessionId, *, task: _Task) -> None:
    """Write the records that belong to the transaction that takes the message."""
    if not task.new:
        queue_history(tx, session_id, task.record.response.id, task.history)
    _claim_name(tx, session_id, task)


def _claim_name(tx: Transaction, session_id: SessionId, task: _Task) -> None:
    if task.new and task.conversation:
        response_store.claim_name(tx, task.conversation, session_id)


def _is_busy(tx: Transaction, name: str, caller: ApiCaller) -> bool:
    found = response_store.find_conversation(tx, name, caller)
    return found is not None and is_leased(tx, session_lease_name(found.session_id))


def _store_response(tx: Transaction, result: TurnResult, *, task: _Task, recorder: ResponseRecorder) -> None:
    last = tx.messages.last(result.session_id, 1)
    record = structs.replace(
        task.record, response=recorder.compose_response(result.end), upto=last[-1].seq if last else 0
    )
    response_store.put_response(tx, result.session_id, record, task.conversation)


def _require_answer(response: Response) -> Response:
    """Return a finished response, or raise the reason why there is none."""
    if response.status == "in_progress":
        raise make_server_problem(INTERRUPTED, _UNAVAILABLE, code="ending")
    if response.error is not None:
        raise make_server_problem(response.error.message, _BAD_GATEWAY, code="turn_failed")
    return response


def _make_response(body: ResponseRequest, conversation: str) -> Response:
    return Response(
        id=response_store.new_response_id(),
        created_at=float(int(time.time())),
        model=body.model or AGENT_MODEL,
        status="in_progress",
        background=bool(body.background),
        conversation=ConversationReference(conversation) if conversation else None,
        instructions=body.instructions,
        max_output_tokens=body.max_output_tokens,
        metadata=body.metadata or {},
        previous_response_id=body.previous_response_id,
        reasoning=body.reasoning or ReasoningOptions(),
        store=body.store is not False,
        temperature=body.temperature,
        top_p=body.top_p,
        user=body.user,
    )


def _get_conversation(body: ResponseRequest) -> str:
    named = body.conversation
    return named.id if isinstance(named, ConversationReference) else named or ""


def _wants_thoughts(reasoning: ReasoningOptions | None) -> bool:
    return reasoning is not None and bool(reasoning.summary or reasoning.generate_summary)


def _check(body: ResponseRequest) -> None:
    """Raise a `Problem` for unsupported options instead of ignoring them."""
    if body.tools:
        raise make_unsupported("tools", _TOOLS)
    if body.text is not None and body.text.format is not None and body.text.format.type != "text":
        raise make_unsupported("text.format", "The agent answers in plain text: `text.format` must be `text`.")
    if body.prompt is not None:
        raise make_unsupported("prompt", "Stored prompts are not supported. Use `instructions` and `input`.")
    if "\0" in _get_conversation(body):
        raise Problem(NUL_REFUSED, param="conversation", code="invalid_value")
    if len(_get_conversation(body)) > _MAX_NAME:
        message_text = f"A conversation name may have at most {_MAX_NAME} characters."
        raise Problem(message_text, param="conversation", code="invalid_value")
    if body.previous_response_id and _get_conversation(body):
        message_text = "Use either `previous_response_id` or `conversation`, not both."
        raise Problem(message_text, param="conversation", code="invalid_value")
    if body.store is False and (body.background or _get_conversation(body)):
        message_text = "A response in the background or in a conversation must be stored. Remove `store`."
        raise Problem(message_text, param="store", code="invalid_value")
