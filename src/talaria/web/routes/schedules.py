"""Routes of the schedules page: jobs, their runs, and a preview of the times that a text means."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Annotated

from msgspec import Meta, Struct, structs

from talaria.contracts.jobs import CatchUp, JobPreview, JobRequest, JobRequester, JobService, JobView, RunView
from talaria.contracts.store import Store
from talaria.core.errors import Refused, TalariaError
from talaria.http.routing import Reply, Route, make_json_reply
from talaria.runtime.workers import is_gateway_alive
from talaria.web.front_door import USER, WebCaller, WebRequest
from talaria.web.wire import Done

log = logging.getLogger(__name__)

_TAG = "web"
_RUNS = 30
_OUTPUT_LIMIT = 8_000
_Line = Annotated[str, Meta(max_length=200)]
_Text = Annotated[str, Meta(max_length=20_000)]


class JobDraft(Struct, frozen=True, kw_only=True):
    """A job to create or change; an omitted value stays, or has its default.

    Without ``when``, the prompt of a new job begins with a time. ``id`` is made by the browser: the same one creates
    the same job.
    """

    id: Annotated[str, Meta(max_length=64)] = ""
    when: _Line | None = None
    prompt: _Text | None = None
    name: _Line | None = None
    zone: _Line | None = None
    model: _Line | None = None
    script: _Text | None = None
    folder: Annotated[str, Meta(max_length=4096)] | None = None
    deliver: Annotated[list[_Line], Meta(max_length=20)] | None = None
    times: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    dollars: Annotated[float, Meta(ge=0, le=1_000_000)] | None = None
    catch_up: CatchUp | None = None
    paused: bool | None = None


class PreviewQuery(Struct, frozen=True):
    """A text that begins with a time, for example ``every monday 9:00 water the plants``."""

    text: Annotated[str, Meta(min_length=1, max_length=20_000)]
    zone: _Line = ""


class SchedulesView(Struct, frozen=True):
    """The jobs, and whether a gateway runs that starts them."""

    jobs: list[JobView]
    has_gateway: bool


class JobRuns(Struct, frozen=True):
    """The latest runs of a job, newest first."""

    runs: list[RunView]


class PreviewReply(Struct, frozen=True):
    """Preview of a text, or the ``problem`` with it, since most texts are not finished yet."""

    preview: JobPreview | None
    problem: str = ""


class ScheduleRoutes:
    """Jobs of the signed-in person; the owner of the agent sees those of everyone.

    ``service`` returns the jobs under the current settings, ``run_here`` runs the pending runs of one job in this
    process.
    """

    def __init__(
        self,
        store: Store,
        service: Callable[[], JobService],
        run_here: Callable[[str], Awaitable[int]],
        jobs: asyncio.TaskGroup,
    ) -> None:
        self._store = store
        self._service = service
        self._run_here = run_here
        self._jobs = jobs

    def routes(self) -> tuple[Route, ...]:
        """Return the routes."""
        one = "/web/schedules/{job_id}"
        return (
            Route(method="GET", path="/web/schedules", handler=self._list, summary="List scheduled jobs", scope=USER,
                  reply_type=SchedulesView, tag=_TAG),
            Route(method="POST", path="/web/schedules", handler=self._add, summary="Schedule a job", scope=USER,
                  takes=JobDraft, reply_type=JobView, status=201, tag=_TAG),
            Route(method="GET", path="/web/schedule-preview", handler=self._preview, summary="Preview the next runs "
                  "of a job", scope=USER, asks=PreviewQuery, reply_type=PreviewReply, tag=_TAG),
            Route(method="PATCH", path=one, handler=self._change, summary="Change, pause or resume a job", scope=USER,
                  takes=JobDraft, reply_type=JobView, tag=_TAG),
            Route(method="DELETE", path=one, handler=self._remove, summary="Delete a job with its history", scope=USER,
                  reply_type=Done, tag=_TAG),
            Route(method="POST", path=f"{one}/run", handler=self._run, summary="Run a job now", scope=USER,
                  reply_type=JobView, tag=_TAG),
            Route(method="GET", path=f"{one}/runs", handler=self._list_history, summary="List the latest runs of a job",
                  scope=USER, reply_type=JobRuns, tag=_TAG),
        )  # fmt: skip

    async def _list(self, request: WebRequest) -> Reply:
        jobs = await self._service().find("", _build_asker(request.caller))
        return make_json_reply(SchedulesView(list(jobs), await self._store.read(is_gateway_alive)))

    async def _add(self, request: WebRequest) -> Reply:
        draft = request.read(JobDraft)
        asker = _build_asker(request.caller, f"{request.caller.name}:{draft.id}" if draft.id else "")
        return make_json_reply(await self._service().add(_to_request(draft), asker), status=201)

    async def _preview(self, request: WebRequest) -> Reply:
        asked = request.parse_query(PreviewQuery)
        try:
            return make_json_reply(PreviewReply(self._service().preview(asked.text, asked.zone)))
        except Refused as refusal:
            return make_json_reply(PreviewReply(None, str(refusal)))

    async def _change(self, request: WebRequest) -> Reply:
        changes = _to_request(request.read(JobDraft))
        job = await self._service().change(request.parts["job_id"], changes, _build_asker(request.caller))
        return make_json_reply(job)

    async def _remove(self, request: WebRequest) -> Reply:
        await self._service().remove(request.parts["job_id"], _build_asker(request.caller))
        return make_json_reply(Done())

    async def _run(self, request: WebRequest) -> Reply:
        job = await self._service().run(request.parts["job_id"], _build_asker(request.caller))
        if not await self._store.read(is_gateway_alive):
            self._jobs.create_task(self._run_pending(job.id))
        return make_json_reply(job)

    async def _list_history(self, request: WebRequest) -> Reply:
        runs = await self._service().history(request.parts["job_id"], _build_asker(request.caller), _RUNS)
        return make_json_reply(JobRuns([structs.replace(run, output=run.output[:_OUTPUT_LIMIT]) for run in runs]))

    async def _run_pending(self, job_id: str) -> None:
        try:
            await self._run_here(job_id)
        except TalariaError as error:
            log.warning("job %s can't run here: %s", job_id, error)


def _build_asker(caller: WebCaller, key: str = "") -> JobRequester:
    return JobRequester(owner=caller.person, everyone=caller.is_owner, key=key)


def _to_request(draft: JobDraft) -> JobRequest:
    values = {name: value for name, value in structs.asdict(draft).items() if name != "id"}
    return JobRequest(**{**values, "deliver": None if draft.deliver is None else tuple(draft.deliver)})
