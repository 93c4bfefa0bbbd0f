"""Route of the home page: pending questions, requests and failures, and the work in progress."""

from collections.abc import Callable
from datetime import datetime

from msgspec import Struct

from talaria.contracts.jobs import Job, JobRequester, JobService, JobView
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.sessions import Session
from talaria.core.events import ApprovalAsked
from talaria.http.routing import Reply, Route, make_json_reply
from talaria.runtime.questions import OpenQuestion, list_open_questions
from talaria.runtime.workers import NetworkStatus, is_gateway_alive, read_workers
from talaria.web.front_door import USER, WebCaller, WebRequest
from talaria.web.routes.goals import GoalView, list_goals
from talaria.web.routes.usage import UsageTotals, read_today

_TAG = "web"
_MOST_JOBS = 5


class QuestionView(Struct, frozen=True, kw_only=True):
    """An open question or approval; ``tool`` is empty for a question."""

    id: str
    session_id: str
    title: str
    source: str
    at: datetime
    text: str
    tool: str
    reason: str
    choices: tuple[str, ...]


class RunningTurnView(Struct, frozen=True):
    """A turn that is running, in any process."""

    session_id: str
    title: str
    source: str
    owner: str
    started_at: datetime


class PairingRequestView(Struct, frozen=True):
    """A person who asks for access."""

    platform: str
    user_id: str
    name: str
    since: datetime | None


class FailedJobView(Struct, frozen=True):
    """A job whose last run has failed or was missed."""

    job_id: str
    name: str
    state: str
    at: datetime
    output: str


class HomeView(Struct, frozen=True, kw_only=True):
    """The home page; requests for access and the networks are shown to the owner only."""

    questions: list[QuestionView]
    pairing: list[PairingRequestView]
    failed_jobs: list[FailedJobView]
    running: list[RunningTurnView]
    goals: list[GoalView]
    next_jobs: list[JobView]
    today: UsageTotals
    has_gateway: bool
    networks: list[NetworkStatus]


class HomeRoutes:
    """The home page. ``service`` returns the jobs under the current settings."""

    def __init__(self, store: Store, service: Callable[[], JobService]) -> None:
        self._store = store
        self._service = service

    def routes(self) -> tuple[Route, ...]:
        """Return the routes."""
        return (
            Route(method="GET", path="/web/home", handler=self._show, summary="Show pending questions and work",
                  scope=USER, reply_type=HomeView, tag=_TAG),
        )  # fmt: skip

    async def _show(self, request: WebRequest) -> Reply:
        caller = request.caller
        asker = JobRequester(owner=caller.person, everyone=caller.is_owner)
        jobs = [job for job in await self._service().find("", asker) if job.state == "waiting" and job.next_at]
        jobs.sort(key=lambda job: job.next_at.timestamp() if job.next_at else 0)
        return make_json_reply(await self._store.read(lambda tx: _read_home(tx, caller, jobs[:_MOST_JOBS])))


def _read_home(tx: Transaction, caller: WebCaller, next_jobs: list[JobView]) -> HomeView:
    waiting = tx.pairing.waiting() if caller.is_owner else []
    workers = read_workers(tx) if caller.is_owner else []
    return HomeView(
        questions=list_questions(tx, caller),
        pairing=[PairingRequestView(one.platform, one.user_id, one.name, one.since) for one in waiting],
        failed_jobs=[one for job in tx.jobs.find() if (one := _find_failure(tx, job, caller)) is not None],
        running=_list_running(tx, caller),
        goals=[goal for goal in list_goals(tx, caller) if goal.state != "done"],
        next_jobs=next_jobs,
        today=read_today(tx, caller),
        has_gateway=is_gateway_alive(tx),
        networks=[network for worker in workers for network in worker.networks],
    )


def list_questions(tx: Transaction, caller: WebCaller) -> list[QuestionView]:
    """Return the open questions of the conversations that a person may see, oldest first."""
    found = []
    for session_id, question in list_open_questions(tx):
        session = tx.sessions.get(session_id)
        if session is None or not caller.may_see(session):
            continue
        found.append(_to_question_view(session, question))
    return found


def _to_question_view(session: Session, question: OpenQuestion) -> QuestionView:
    asked = question.asked
    return QuestionView(
        id=asked.id,
        session_id=session.id,
        title=session.title,
        source=session.source,
        at=question.at,
        text=asked.summary if isinstance(asked, ApprovalAsked) else asked.question,
        tool=asked.tool if isinstance(asked, ApprovalAsked) else "",
        reason=asked.reason if isinstance(asked, ApprovalAsked) else "",
        choices=() if isinstance(asked, ApprovalAsked) else asked.choices,
    )


def _list_running(tx: Transaction, caller: WebCaller) -> list[RunningTurnView]:
    found = []
    for turn in tx.turns.find(running=True):
        session = tx.sessions.get(turn.session_id)
        if session is not None and caller.may_see(session):
            found.append(RunningTurnView(session.id, session.title, session.source, session.owner, turn.started_at))
    return found


def _find_failure(tx: Transaction, job: Job, caller: WebCaller) -> FailedJobView | None:
    if not caller.is_owner and job.owner != caller.person:
        return None
    for run in tx.jobs.runs(job.id, 1):
        if run.state in ("failed", "missed"):
            return FailedJobView(job.id, job.name, run.state, run.due_at, run.output[:500])
    return None
