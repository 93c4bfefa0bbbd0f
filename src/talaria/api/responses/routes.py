"""The routes about responses: ask for one, wait for it or not, look at it again, go on from it."""

import asyncio
import time
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct, structs

from talaria.api.conversations import SESSION_HEADER, Conversations
from talaria.api.http import Reply, Request, event_reply, json_reply
from talaria.api.keys import Caller
from talaria.api.models import OWN, ModelNames
from talaria.api.pictures import Pictures
from talaria.api.problems import NO_WORDS, Problem, server_problem, unsupported
from talaria.api.responses import keeping
from talaria.api.responses.background import beginning, current, keep_ended
from talaria.api.responses.keeping import Continued, Kept
from talaria.api.responses.reading import illustrated, instructed, read_input
from talaria.api.responses.stream_events import ResponseEvent
from talaria.api.responses.telling import CUT_OFF, Account, RunStream, Scribe, TurnStream
from talaria.api.responses.wire import (
    ConversationReference,
    DeletedResponse,
    InputItems,
    ReasoningWish,
    Response,
    ResponseRequest,
)
from talaria.api.router import Route
from talaria.api.runs.following import Audience
from talaria.api.runs.keeping import RUNS, Order, Start, begin_run, put_before
from talaria.api.runs.routes import stop
from talaria.api.turns import Turn, Wanted
from talaria.contracts.follower import Ending
from talaria.contracts.store import Transaction
from talaria.core.errors import Busy
from talaria.core.ids import SessionId, new_session_id
from talaria.core.messages import Message
from talaria.sessions.holding import is_held, lane_of

_TAG = "responses"
_LOOK_AGAIN = 0.05
_LONGEST_NAME = 512
_BAD_GATEWAY, _UNAVAILABLE = 502, 503
_TOOLS = "The agent has tools of its own and does not call those of a client: leave `tools` away."

_encode = msgspec.json.Encoder().encode


class ResponseQuery(Struct, frozen=True):
    """Whether to hear a response while it grows, and behind which number."""

    stream: bool = False
    starting_after: Annotated[int, Meta(ge=0, le=2**53)] | None = None


class ItemsQuery(Struct, frozen=True):
    """Which part of what was said is wanted."""

    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    order: Literal["asc", "desc"] = "desc"
    after: str = ""


class _Task(Struct, frozen=True, kw_only=True):
    """A response to be made: in the conversation of ``session_id``, or in a new one under that id."""

    kept: Kept
    message: Message
    history: tuple[Message, ...]
    model: str
    session_id: SessionId
    new: bool
    conversation: str
    thoughts: bool


class ResponseRoutes:
    """Responses over conversations that nobody can be asked back in."""

    def __init__(
        self, conversations: Conversations, audience: Audience, models: ModelNames, pictures: Pictures
    ) -> None:
        self._conversations = conversations
        self._audience = audience
        self._store = conversations.house.store
        self._models = models
        self._pictures = pictures

    def routes(self) -> tuple[Route, ...]:
        """Return them."""
        one = "/v1/responses/{response_id}"
        return (
            Route(method="POST", path="/v1/responses", handler=self._create, summary="Ask for a response",
                  takes=ResponseRequest, gives=Response, events=ResponseEvent, repeatable=True, heeds=(SESSION_HEADER,),
                  tag=_TAG),
            Route(method="GET", path=one, handler=self._show, summary="Look at a response again",
                  asks=ResponseQuery, gives=Response, events=ResponseEvent, tag=_TAG),
            Route(method="DELETE", path=one, handler=self._delete, summary="Forget a response",
                  gives=DeletedResponse, tag=_TAG),
            Route(method="POST", path=f"{one}/cancel", handler=self._cancel, summary="Stop a response",
                  gives=Response, repeatable=True, tag=_TAG),
            Route(method="GET", path=f"{one}/input_items", handler=self._items, summary="What was said",
                  asks=ItemsQuery, gives=InputItems, tag=_TAG),
        )  # fmt: skip

    async def _create(self, request: Request) -> Reply:
        body = request.read(ResponseRequest)
        _check(body)
        while True:
            try:
                return await self._made(body, request)
            except keeping.NameTaken:  # which was begun in this very moment, and is found now
                continue
            except Busy:
                if not (name := _conversation(body)):
                    raise
                await self._until_free(name, request.caller)

    async def _until_free(self, name: str, caller: Caller) -> None:
        """Wait until no other server works on a conversation: its turns come one after the other, wherever that is."""
        while await self._store.read(lambda tx: _is_busy(tx, name, caller)):
            await asyncio.sleep(_LOOK_AGAIN)
            self._conversations.check_open()

    async def _made(self, body: ResponseRequest, request: Request) -> Reply:
        task = await self._task(body, request.headers.get(SESSION_HEADER, ""), request.caller)
        headers = {SESSION_HEADER: task.session_id}
        if body.background:
            return await self._queue(task, request.caller, headers, streamed=bool(body.stream))
        scribe = Scribe(task.kept.response, thoughts=task.thoughts)
        account = Account(task.kept.response, thoughts=task.thoughts)
        turn = Turn(self._conversations, self._wanted(task, scribe), request.caller)
        if body.stream:
            await turn.begin()
            return event_reply(TurnStream(turn, account, scribe), headers=headers)
        async with turn:
            async for event in turn:
                account.take(event, scribe.ended_at or time.time())
        return json_reply(_answered(account.response), headers=headers)

    async def _task(self, body: ResponseRequest, session: str, caller: Caller) -> _Task:
        """Return what is to be done; a conversation that is gone on with is found, or branched off, here."""
        model = await self._models.resolve(body.model or "")
        said = await self._store.read(
            lambda tx: read_input(body.input, lambda item_id: keeping.item(tx, item_id, caller))
        )
        continued = await self._continued(body, session, caller)
        place = continued.session_id if continued else new_session_id()
        *history, message = await illustrated((*said.history, said.message), self._pictures, place)
        told = "\n\n".join(filter(None, (body.instructions, said.instructions)))
        if continued is not None and told and told != continued.instructions:
            history.insert(0, instructed(told))
        name = _conversation(body)
        return _Task(
            kept=Kept(
                response=_begun(body, name),
                items=said.items,
                instructions=told or (continued.instructions if continued else ""),
            ),
            message=message,
            history=tuple(history),
            model=model,
            session_id=place,
            new=continued is None,
            conversation=keeping.conversation_key(name, caller) if name else "",
            thoughts=_wants_thoughts(body.reasoning),
        )

    async def _continued(self, body: ResponseRequest, session: str, caller: Caller) -> Continued | None:
        if body.previous_response_id:
            previous = body.previous_response_id
            return await self._store.write(lambda tx: keeping.go_on_from(tx, previous, caller))
        if name := _conversation(body):
            return await self._store.read(lambda tx: keeping.named(tx, name, caller))
        return await self._store.read(lambda tx: keeping.of_session(tx, session, caller)) if session else None

    def _wanted(self, task: _Task, scribe: Scribe) -> Wanted:
        return Wanted(
            message=task.message,
            session_id="" if task.new else task.session_id,
            new_id=task.session_id,
            instructions=task.kept.instructions,
            history=task.history if task.new else (),
            model=task.model,
            begun=partial(_begin, task=task),
            ended=partial(_keep, task=task, scribe=scribe) if task.kept.response.store else None,
            heard=scribe.hear,
        )

    async def _queue(self, task: _Task, caller: Caller, headers: Mapping[str, str], *, streamed: bool) -> Reply:
        """Let a response be worked on without its client."""
        response = structs.replace(task.kept.response, status="queued")
        start = Start(
            message=task.message,
            order=Order(
                kind="response",
                model=task.model,
                response=_encode(response).decode(),
                thoughts=task.thoughts,
            ),
            session_id="" if task.new else task.session_id,
            new_id=task.session_id,
            instructions=task.kept.instructions,
            history=task.history,
        )

        def begin(tx: Transaction) -> None:
            run = begin_run(tx, response.id, start, caller)
            _name(tx, run.session_id, task)
            keeping.put(tx, run.session_id, structs.replace(task.kept, response=response), task.conversation)

        await self._store.write(begin)
        await self._store.hint(RUNS)
        if not streamed:
            return json_reply(response, headers=headers)
        return await self._followed(response.id, -1, headers)

    async def _followed(self, response_id: str, after: int, headers: Mapping[str, str]) -> Reply:
        run = await self._store.read(lambda tx: tx.runs.get(response_id))
        if run is None:
            raise Problem(
                "Only a response with `background` can be streamed again.", param="stream", code="not_streamable"
            )
        return event_reply(RunStream(self._audience.follow(run.id), beginning(run), after), headers=headers)

    async def _show(self, request: Request) -> Reply:
        asked, name = request.asked(ResponseQuery), request.parts["response_id"]
        stored, kept = await self._store.read(lambda tx: keeping.find(tx, name, request.caller))
        headers = {SESSION_HEADER: stored.session_id}
        if asked.stream:
            after = -1 if asked.starting_after is None else asked.starting_after
            return await self._followed(name, after, headers)
        return json_reply(await self._store.read(lambda tx: current(tx, stored, kept)), headers=headers)

    async def _delete(self, request: Request) -> Reply:
        name = request.parts["response_id"]
        await self._store.read(lambda tx: keeping.find(tx, name, request.caller))
        run = await self._store.read(lambda tx: tx.runs.get(name))
        if run is not None:
            await stop(self._store, run)
        await self._store.write(lambda tx: tx.responses.delete(name))
        return json_reply(DeletedResponse(name))

    async def _cancel(self, request: Request) -> Reply:
        name = request.parts["response_id"]
        await self._store.read(lambda tx: keeping.find(tx, name, request.caller))
        run = await self._store.read(lambda tx: tx.runs.get(name))
        if run is None:
            raise Problem("Only a response with `background` can be cancelled.", code="not_cancellable")
        await stop(self._store, run)
        await self._store.write(lambda tx: keep_ended(tx, run))
        stored, kept = await self._store.read(lambda tx: keeping.find(tx, name, request.caller))
        return json_reply(await self._store.read(lambda tx: current(tx, stored, kept)))

    async def _items(self, request: Request) -> Reply:
        asked, name = request.asked(ItemsQuery), request.parts["response_id"]
        _, kept = await self._store.read(lambda tx: keeping.find(tx, name, request.caller))
        return json_reply(keeping.page(kept.items, asked.order, asked.after, asked.limit))


def _begin(tx: Transaction, session_id: SessionId, *, task: _Task) -> None:
    """Do what belongs to the transaction that takes the message."""
    if not task.new:
        put_before(tx, session_id, task.kept.response.id, task.history)
    _name(tx, session_id, task)


def _name(tx: Transaction, session_id: SessionId, task: _Task) -> None:
    if task.new and task.conversation:
        keeping.give_name(tx, task.conversation, session_id)


def _is_busy(tx: Transaction, name: str, caller: Caller) -> bool:
    found = keeping.named(tx, name, caller)
    return found is not None and is_held(tx, lane_of(found.session_id))


def _keep(tx: Transaction, ending: Ending, *, task: _Task, scribe: Scribe) -> None:
    last = tx.messages.last(ending.session_id, 1)
    kept = structs.replace(task.kept, response=scribe.composed(ending.end), upto=last[-1].seq if last else 0)
    keeping.put(tx, ending.session_id, kept, task.conversation)


def _answered(response: Response) -> Response:
    """Return a response that came to an end, or raise why it did not."""
    if response.status == "in_progress":
        raise server_problem(CUT_OFF, _UNAVAILABLE, code="ending")
    if response.error is not None:
        raise server_problem(response.error.message, _BAD_GATEWAY, code="turn_failed")
    return response


def _begun(body: ResponseRequest, conversation: str) -> Response:
    return Response(
        id=keeping.new_response_id(),
        created_at=float(int(time.time())),
        model=body.model or OWN,
        status="in_progress",
        background=bool(body.background),
        conversation=ConversationReference(conversation) if conversation else None,
        instructions=body.instructions,
        max_output_tokens=body.max_output_tokens,
        metadata=body.metadata or {},
        previous_response_id=body.previous_response_id,
        reasoning=body.reasoning or ReasoningWish(),
        store=body.store is not False,
        temperature=body.temperature,
        top_p=body.top_p,
        user=body.user,
    )


def _conversation(body: ResponseRequest) -> str:
    named = body.conversation
    return named.id if isinstance(named, ConversationReference) else named or ""


def _wants_thoughts(reasoning: ReasoningWish | None) -> bool:
    return reasoning is not None and bool(reasoning.summary or reasoning.generate_summary)


def _check(body: ResponseRequest) -> None:
    """Raise a `Problem` for what cannot be honoured, rather than to do something else."""
    if body.tools:
        raise unsupported("tools", _TOOLS)
    if body.text is not None and body.text.format is not None and body.text.format.type != "text":
        raise unsupported("text.format", "The agent answers in words: `text.format` can only be `text`.")
    if body.prompt is not None:
        raise unsupported("prompt", "Prompts are not kept here: say it in `instructions` and `input`.")
    if "\0" in _conversation(body):
        raise Problem(NO_WORDS, param="conversation", code="invalid_value")
    if len(_conversation(body)) > _LONGEST_NAME:
        words = f"The name of a conversation has {_LONGEST_NAME} characters at most."
        raise Problem(words, param="conversation", code="invalid_value")
    if body.previous_response_id and _conversation(body):
        words = "`previous_response_id` and `conversation` cannot both say where to go on."
        raise Problem(words, param="conversation", code="invalid_value")
    if body.store is False and (body.background or _conversation(body)):
        words = "What goes on in the background, or in a conversation, has to be kept: leave `store` away."
        raise Problem(words, param="store", code="invalid_value")
