"""The routes about runs: start one, look at it, follow it, answer what it asks, stop it."""

import asyncio
from collections.abc import AsyncIterator

from talaria.api.conversations import SESSION_HEADER, entered
from talaria.api.http import Reply, Request, event_reply, json_reply, sse
from talaria.api.models import ModelNames
from talaria.api.pictures import Pictures
from talaria.api.problems import Problem, conflict, missing
from talaria.api.responses.reading import illustrated, instructed, read_input
from talaria.api.router import Route
from talaria.api.runs.asked import Question, open_questions, order_answer, orders_for
from talaria.api.runs.events import ApprovalRequested, RunEvent, stream_of
from talaria.api.runs.following import Audience, Following
from talaria.api.runs.keeping import RUNS, Order, Start, begin_run, find_run, is_over, new_run_id, shown, stop_run
from talaria.api.runs.wire import Decision, EventsQuery, Run, RunRequest
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.events import Event
from talaria.contracts.stores.responses import ApiRun
from talaria.core.ids import SessionId, new_session_id

_TAG = "runs"
_STOPPING = 5.0
_LAST_EVENT = "last-event-id"
_ANSWERS = {"approve": "once", "approve_session": "session", "approve_always": "always"}


class RunRoutes:
    """Runs over one store; whichever server has taken one up works on it."""

    def __init__(self, audience: Audience, models: ModelNames, pictures: Pictures) -> None:
        self._audience = audience
        self._store = audience.store
        self._models = models
        self._pictures = pictures

    def routes(self) -> tuple[Route, ...]:
        """Return them."""
        one = "/v1/runs/{run_id}"
        return (
            Route(method="POST", path="/v1/runs", handler=self._create, summary="Start a run", takes=RunRequest,
                  gives=Run, status=202, repeatable=True, lasting=True, heeds=(SESSION_HEADER,), tag=_TAG),
            Route(method="GET", path=one, handler=self._show, summary="How far a run has come", gives=Run, tag=_TAG),
            Route(method="GET", path=f"{one}/events", handler=self._events, summary="Follow a run", asks=EventsQuery,
                  events=RunEvent, lasting=True, heeds=(_LAST_EVENT,), tag=_TAG),
            Route(method="POST", path=f"{one}/approval", handler=self._decide, summary="Answer what a run asks",
                  takes=Decision, gives=Run, repeatable=True, tag=_TAG),
            Route(method="POST", path=f"{one}/stop", handler=self._stop, summary="Stop a run", gives=Run,
                  repeatable=True, lasting=True, tag=_TAG),
        )  # fmt: skip

    async def _create(self, request: Request) -> Reply:
        body = request.read(RunRequest)
        model = await self._models.resolve(body.model)
        said = read_input(body.input, lambda _: None)
        named = body.session_id or request.headers.get(SESSION_HEADER, "")
        place = SessionId(named) if named else new_session_id()
        if named:  # before anything is kept in its folder
            await self._store.read(lambda tx: entered(tx, named, request.caller))
        *history, message = await illustrated((*said.history, said.message), self._pictures, place)
        told = "\n\n".join(filter(None, (body.instructions, said.instructions)))
        if named and told:
            history.insert(0, instructed(told))
        start = Start(
            message=message,
            order=Order(model=model, metadata=body.metadata),
            session_id=named,
            new_id=place,
            instructions=told,
            history=tuple(history),
        )
        run_id = new_run_id()
        run = await self._store.write(lambda tx: shown(tx, begin_run(tx, run_id, start, request.caller)))
        await self._store.hint(RUNS)
        return json_reply(run, status=202, headers={SESSION_HEADER: run.session_id, "location": f"/v1/runs/{run.id}"})

    async def _show(self, request: Request) -> Reply:
        return json_reply(await self._store.read(lambda tx: shown(tx, self._found(tx, request))))

    async def _events(self, request: Request) -> Reply:
        run = await self._store.read(lambda tx: self._found(tx, request))
        after = _last_heard(request.headers.get(_LAST_EVENT), request.asked(EventsQuery).after)
        following = self._audience.follow(run.id, after)
        return event_reply(_RunStream(following), headers={SESSION_HEADER: run.session_id})

    async def _decide(self, request: Request) -> Reply:
        decision = request.read(Decision)
        if decision.decision in _ANSWERS and not request.caller.may("admin"):
            words = "To allow what is dangerous needs a key with the scope `admin`; `deny` does not."
            raise Problem(words, 403, kind="permission_error", param="decision", code="insufficient_scope")
        run = await self._store.write(lambda tx: _decided(tx, self._found(tx, request), decision))
        await self._store.hint(orders_for(run.session_id))
        return json_reply(await self._store.read(lambda tx: shown(tx, self._found(tx, request))))

    async def _stop(self, request: Request) -> Reply:
        run = await self._store.read(lambda tx: self._found(tx, request))
        await stop(self._store, run)
        return json_reply(await self._store.read(lambda tx: shown(tx, self._found(tx, request))))

    def _found(self, tx: Transaction, request: Request) -> ApiRun:
        return find_run(tx, request.parts["run_id"], request.caller)


async def stop(store: Store, run: ApiRun) -> None:
    """Stop a run, and wait a little until it is."""
    if not await store.write(lambda tx: _stopped(tx, run.id)):
        return
    await store.hint(orders_for(run.session_id))
    await store.hint(stream_of(run.id))
    try:
        async with asyncio.timeout(_STOPPING), store.heeding(stream_of(run.id)) as rung:
            while not await store.read(lambda tx: is_over(tx.runs.get(run.id))):
                await rung.wait()
                rung.clear()
    except TimeoutError:
        return


class _RunStream:
    """Implements `Stream`: the events of a run with their numbers."""

    def __init__(self, following: Following) -> None:
        self._following = following

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for page in self._following:
            yield b"".join(map(_written, page))

    @property
    def is_whole(self) -> bool:
        return self._following.is_over

    async def close(self) -> None:
        await self._following.close()


def _written(event: Event) -> bytes:
    return sse(event.payload.encode(), event=event.kind, number=event.seq)


def _last_heard(header: str | None, after: int) -> int:
    if not header:
        return after
    if not header.isascii() or not header.isdecimal() or len(header) > 18:
        raise Problem("`Last-Event-ID` is the number of an event.", param="Last-Event-ID", code="invalid_value")
    return int(header)


def _stopped(tx: Transaction, run_id: str) -> bool:
    run = tx.runs.get(run_id)
    return run is not None and stop_run(tx, run)


def _decided(tx: Transaction, run: ApiRun, decision: Decision) -> ApiRun:
    asked = next((one for one in open_questions(tx, run.session_id) if one.id == decision.id), None)
    if asked is None or is_over(run):
        raise missing(f"Nothing is asked as `{decision.id[:64]}`, or not any more.", param="id", code="not_asked")
    if order_answer(tx, run.session_id, asked.id, _words(asked, decision)) is None:
        raise conflict("That was answered already.", code="answered")
    return run


def _words(asked: Question, decision: Decision) -> str:
    """Return the answer as a conversation understands it."""
    if isinstance(asked, ApprovalRequested):
        if decision.decision is None:
            raise Problem("An approval needs a `decision`.", param="decision", code="missing_required_parameter")
        # A reason that reads like a yes must not become one.
        why_not = f"“{decision.reason}”" if decision.reason in _ANSWERS.values() else decision.reason
        return _ANSWERS.get(decision.decision, why_not or "no")
    if decision.answer is None:
        raise Problem("A question needs an `answer`.", param="answer", code="missing_required_parameter")
    return decision.answer
