"""The routes about runs: start, retrieve, follow, answer, stop."""

import asyncio
from collections.abc import AsyncIterator

from talaria.api.files import ImageStore
from talaria.api.front_door import ApiRequest
from talaria.api.input_items import make_instruction, read_input, store_images
from talaria.api.meta import ModelNames
from talaria.api.runs.events import ApprovalRequested, RunEvent, RunQuestion, make_stream_name
from talaria.api.runs.followers import RunFollower, RunFollowers
from talaria.api.runs.run_store import (
    EventsQuery,
    Run,
    RunDecision,
    RunOptions,
    RunRequest,
    RunStart,
    begin_run,
    find_run,
    is_over,
    list_open_questions,
    new_run_id,
    request_answer,
    stop_run,
    to_run,
)
from talaria.api.turns.session_pool import SESSION_HEADER, require_session
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.responses import ApiRun
from talaria.core.ids import SessionId, new_session_id
from talaria.http.errors import Problem, make_conflict, make_not_found
from talaria.http.routing import Reply, Route, make_event_reply, make_json_reply
from talaria.runtime.questions import format_refusal

_TAG = "runs"
_STOP_TIMEOUT = 5.0
_LAST_EVENT = "last-event-id"
_ANSWERS = {"approve": "once", "approve_session": "session", "approve_always": "always"}


class RunRoutes:
    """Runs over one store; any server may process them."""

    def __init__(self, followers: RunFollowers, models: ModelNames, image_store: ImageStore) -> None:
        self._followers = followers
        self._store = followers.store
        self._models = models
        self._image_store = image_store

    def routes(self) -> tuple[Route, ...]:
        """Return the routes."""
        one = "/v1/runs/{run_id}"
        return (
            Route(method="POST", path="/v1/runs", handler=self._create, summary="Start a run", takes=RunRequest,
                  reply_type=Run, status=202, repeatable=True, lasting=True, used_headers=(SESSION_HEADER,),
                  scope="chat", tag=_TAG),
            Route(method="GET", path=one, handler=self._show, summary="Retrieve a run", reply_type=Run,
                  scope="chat", tag=_TAG),
            Route(method="GET", path=f"{one}/events", handler=self._stream_events, summary="Stream a run's events",
                  asks=EventsQuery, events=RunEvent, lasting=True, used_headers=(_LAST_EVENT,), scope="chat", tag=_TAG),
            Route(method="POST", path=f"{one}/approval", handler=self._decide, summary="Answer a run's question",
                  takes=RunDecision, reply_type=Run, repeatable=True, scope="chat", tag=_TAG),
            Route(method="POST", path=f"{one}/stop", handler=self._stop, summary="Stop a run", reply_type=Run,
                  repeatable=True, lasting=True, scope="chat", tag=_TAG),
        )  # fmt: skip

    async def _create(self, request: ApiRequest) -> Reply:
        body = request.read(RunRequest)
        model = await self._models.resolve(body.model)
        parsed = read_input(body.input, lambda _: None)
        named = body.session_id or request.headers.get(SESSION_HEADER, "")
        target_id = SessionId(named) if named else new_session_id()
        if named:  # before anything is stored in its folder
            await self._store.read(lambda tx: require_session(tx, named, request.caller))
        *history, message = await store_images((*parsed.history, parsed.message), self._image_store, target_id)
        instruction_text = "\n\n".join(filter(None, (body.instructions, parsed.instructions)))
        if named and instruction_text:
            history.insert(0, make_instruction(instruction_text))
        start = RunStart(
            message=message,
            order=RunOptions(model=model, metadata=body.metadata),
            session_id=named,
            new_id=target_id,
            instructions=instruction_text,
            history=tuple(history),
        )
        run_id = new_run_id()
        run = await self._store.write(lambda tx: to_run(tx, begin_run(tx, run_id, start, request.caller)))
        return make_json_reply(
            run, status=202, headers={SESSION_HEADER: run.session_id, "location": f"/v1/runs/{run.id}"}
        )

    async def _show(self, request: ApiRequest) -> Reply:
        return make_json_reply(await self._store.read(lambda tx: to_run(tx, self._find_run(tx, request))))

    async def _stream_events(self, request: ApiRequest) -> Reply:
        run = await self._store.read(lambda tx: self._find_run(tx, request))
        after = _parse_last_event(request.headers.get(_LAST_EVENT), request.parse_query(EventsQuery).after)
        follower = self._followers.follow(run.id, after)
        return make_event_reply(_RunStream(follower), headers={SESSION_HEADER: run.session_id})

    async def _decide(self, request: ApiRequest) -> Reply:
        decision = request.read(RunDecision)
        if decision.decision in _ANSWERS and not request.caller.may("admin"):
            message_text = "Approving a dangerous action requires a key with the scope `admin`. Denying it doesn't."
            raise Problem(message_text, 403, kind="permission_error", param="decision", code="insufficient_scope")
        await self._store.write(lambda tx: _store_decision(tx, self._find_run(tx, request), decision))
        return make_json_reply(await self._store.read(lambda tx: to_run(tx, self._find_run(tx, request))))

    async def _stop(self, request: ApiRequest) -> Reply:
        run = await self._store.read(lambda tx: self._find_run(tx, request))
        await stop_and_wait(self._store, run)
        return make_json_reply(await self._store.read(lambda tx: to_run(tx, self._find_run(tx, request))))

    def _find_run(self, tx: Transaction, request: ApiRequest) -> ApiRun:
        return find_run(tx, request.parts["run_id"], request.caller)


async def stop_and_wait(store: Store, run: ApiRun) -> None:
    """Stop a run, and wait briefly until it has stopped."""
    if not await store.write(lambda tx: _request_stop(tx, run.id)):
        return
    try:
        async with asyncio.timeout(_STOP_TIMEOUT), store.subscribe(make_stream_name(run.id)) as subscription:
            await subscription.wait()
            while not await store.read(lambda tx: is_over(tx.runs.get(run.id))):
                await subscription.wait()
    except TimeoutError:
        return


class _RunStream:
    """The stream of a run's events with their numbers."""

    def __init__(self, follower: RunFollower) -> None:
        self._follower = follower

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for page in self._follower:
            yield page.encoded

    @property
    def is_whole(self) -> bool:
        return self._follower.is_over

    async def close(self) -> None:
        await self._follower.close()


def _parse_last_event(header: str | None, after: int) -> int:
    if not header:
        return after
    if not header.isascii() or not header.isdecimal() or len(header) > 18:
        raise Problem("`Last-Event-ID` must be the number of an event.", param="Last-Event-ID", code="invalid_value")
    return int(header)


def _request_stop(tx: Transaction, run_id: str) -> bool:
    run = tx.runs.get(run_id)
    return run is not None and stop_run(tx, run)


def _store_decision(tx: Transaction, run: ApiRun, decision: RunDecision) -> ApiRun:
    asked = next((one for one in list_open_questions(tx, run.session_id) if one.id == decision.id), None)
    if asked is None or is_over(run):
        raise make_not_found(f"There is no open question `{decision.id[:64]}`.", param="id", code="not_asked")
    if request_answer(tx, run.session_id, asked.id, _format_answer(asked, decision)) is None:
        raise make_conflict("That has already been answered.", code="answered")
    return run


def _format_answer(asked: RunQuestion, decision: RunDecision) -> str:
    """Return the answer in the form that a session understands."""
    if isinstance(asked, ApprovalRequested):
        if decision.decision is None:
            raise Problem("An approval needs a `decision`.", param="decision", code="missing_required_parameter")
        return _ANSWERS.get(decision.decision) or format_refusal(decision.reason)
    if decision.answer is None:
        raise Problem("A question needs an `answer`.", param="answer", code="missing_required_parameter")
    return decision.answer
