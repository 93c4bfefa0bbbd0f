"""Routes of the goals page: the goals of all conversations, their verdicts, set, pause, resume and clear."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Annotated, Literal

from msgspec import Meta, Struct

from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.sessions import Session
from talaria.core.ids import SessionId
from talaria.goals.goal import GOAL, GoalContract, GoalState, JudgedTurn, count_tokens
from talaria.goals.goal_manager import GoalManager
from talaria.http.errors import make_not_found
from talaria.http.routing import Reply, Route, make_json_reply
from talaria.runtime.live.remote import notify_session
from talaria.web.conversations import WebConversations, WebSession, is_elsewhere
from talaria.web.front_door import USER, WebCaller, WebRequest
from talaria.web.session_views import require_session
from talaria.web.wire import Done

_TAG = "web"
_VERDICTS = 50


class GoalText(Struct, frozen=True):
    """A goal as it is written in `/goal`, with its conditions and budget as lines."""

    text: Annotated[str, Meta(min_length=1, max_length=20_000)]


class GoalBudget(Struct, frozen=True):
    """A limit of a goal and how much of it is used; ``unit`` is turns, tokens, microdollars or seconds."""

    unit: Literal["turns", "tokens", "microdollars", "seconds"]
    used: int
    limit: int


class VerdictView(Struct, frozen=True):
    """The verdict on a turn; ``exit_code`` is that of the verify command, if it ran."""

    at: datetime
    verdict: str
    reason: str
    exit_code: int | None


class GoalView(Struct, frozen=True, kw_only=True):
    """A goal; ``state`` is ``waiting`` while it is active and something else has to end first."""

    session_id: str
    title: str
    source: str
    owner: str
    goal: str
    state: Literal["active", "waiting", "paused", "done"]
    note: str
    running: bool
    set_at: datetime
    contract: GoalContract
    subgoals: tuple[str, ...]
    budgets: list[GoalBudget]
    turns_used: int
    last: VerdictView | None


class GoalRoutes:
    """The goals of the conversations that a person may see."""

    def __init__(self, store: Store, conversations: WebConversations) -> None:
        self._store = store
        self._conversations = conversations

    def routes(self) -> tuple[Route, ...]:
        """Return the routes."""
        one = "/web/goals/{session_id}"
        return (
            Route(method="GET", path="/web/goals", handler=self._list, summary="List the goals of all conversations",
                  scope=USER, reply_type=list[GoalView], tag=_TAG),
            Route(method="POST", path="/web/goals", handler=self._begin, summary="Set a goal in a new conversation",
                  scope=USER, takes=GoalText, reply_type=GoalView, status=201, lasting=True, tag=_TAG),
            Route(method="PUT", path=one, handler=self._set, summary="Set or replace the goal of a conversation",
                  scope=USER, takes=GoalText, reply_type=GoalView, lasting=True, tag=_TAG),
            Route(method="DELETE", path=one, handler=self._clear, summary="Clear a goal", scope=USER,
                  reply_type=Done, lasting=True, tag=_TAG),
            Route(method="POST", path=f"{one}/pause", handler=self._pause, summary="Pause a goal", scope=USER,
                  reply_type=GoalView, lasting=True, tag=_TAG),
            Route(method="POST", path=f"{one}/resume", handler=self._resume, summary="Resume a goal with a new budget",
                  scope=USER, reply_type=GoalView, lasting=True, tag=_TAG),
            Route(method="GET", path=f"{one}/verdicts", handler=self._list_verdicts,
                  summary="List the verdicts on a goal", scope=USER, reply_type=list[VerdictView], tag=_TAG),
        )  # fmt: skip

    async def _list(self, request: WebRequest) -> Reply:
        return make_json_reply(await self._store.read(lambda tx: list_goals(tx, request.caller)))

    async def _begin(self, request: WebRequest) -> Reply:
        asked, caller = request.read(GoalText), request.caller
        begun = await self._conversations.begin(caller)
        try:
            await self._make_manager(begun.session_id).set(asked.text, vouched=caller.is_owner, sender=caller.sender)
        except BaseException:
            await self._conversations.forget(begun.session_id)  # nothing was said in it
            raise
        _wake(begun)
        return make_json_reply(await self._show(begun.session_id, caller), status=201)

    async def _set(self, request: WebRequest) -> Reply:
        asked, caller = request.read(GoalText), request.caller

        async def change(goal: GoalManager) -> None:
            await goal.set(asked.text, vouched=caller.is_owner, sender=caller.sender)

        return await self._change(request, change)

    async def _pause(self, request: WebRequest) -> Reply:
        async def change(goal: GoalManager) -> None:
            await goal.pause()

        return await self._change(request, change)

    async def _resume(self, request: WebRequest) -> Reply:
        async def change(goal: GoalManager) -> None:
            await goal.resume()

        return await self._change(request, change)

    async def _clear(self, request: WebRequest) -> Reply:
        session = await self._find(request)
        await self._make_manager(session.id).clear()
        await self._notify(session, request.caller)
        return make_json_reply(Done())

    async def _list_verdicts(self, request: WebRequest) -> Reply:
        session = await self._find(request)
        found = await self._make_manager(session.id).history(_VERDICTS)
        return make_json_reply([_to_verdict_view(one) for one in reversed(found)])

    async def _change(self, request: WebRequest, change: Callable[[GoalManager], Awaitable[None]]) -> Reply:
        session = await self._find(request)
        await change(self._make_manager(session.id))
        await self._notify(session, request.caller)
        return make_json_reply(await self._show(session.id, request.caller))

    async def _notify(self, session: Session, caller: WebCaller) -> None:
        """Let the process that serves the conversation see the change; without one, it continues here."""
        if await is_elsewhere(self._store, self._conversations, session):
            await self._store.write(lambda tx: notify_session(tx, session.id))
        else:
            _wake(await self._conversations.open(session.id, caller))

    def _make_manager(self, session_id: SessionId) -> GoalManager:
        application = self._conversations.application
        return GoalManager(session_id, store=self._store, allowance=application.goal_budgets)

    async def _find(self, request: WebRequest) -> Session:
        name, caller = request.parts["session_id"], request.caller
        return await self._store.read(lambda tx: require_session(tx, name, caller))

    async def _show(self, session_id: str, caller: WebCaller) -> GoalView:
        goals = await self._store.read(lambda tx: list_goals(tx, caller))
        for goal in goals:
            if goal.session_id == session_id:
                return goal
        raise make_not_found("This conversation has no goal.", code="no_goal")


def list_goals(tx: Transaction, caller: WebCaller) -> list[GoalView]:
    """Return the goals that a person may see: active ones first, then the newest."""
    running = {turn.session_id for turn in tx.turns.find(running=True)}
    now, found = datetime.now(UTC), []
    for session_id, _, state in GOAL.of_all(tx):
        session = tx.sessions.get(session_id) if state is not None else None
        if state is not None and session is not None and caller.may_see(session):
            found.append(_to_view(session, state, now, is_running=session_id in running))
    order = ("active", "waiting", "paused", "done")
    return sorted(found, key=lambda one: (order.index(one.state), -one.set_at.timestamp()))


def _to_view(session: Session, state: GoalState, now: datetime, *, is_running: bool) -> GoalView:
    parked = state.parked
    return GoalView(
        session_id=session.id,
        title=session.title,
        source=session.source,
        owner=session.owner,
        goal=state.goal,
        state="waiting" if state.status == "active" and parked else state.status,
        note=state.paused_reason if state.status == "paused" else parked.reason if parked else "",
        running=is_running,
        set_at=state.set_at,
        contract=state.contract,
        subgoals=state.subgoals,
        budgets=_list_budgets(session, state, now),
        turns_used=state.turns_used,
        last=_to_verdict_view(state.last) if state.last else None,
    )


def _list_budgets(session: Session, state: GoalState, now: datetime) -> list[GoalBudget]:
    most, before, usage = state.allowance, state.usage, session.usage
    seconds = (now if state.status == "active" else state.last.at if state.last else state.since) - state.since
    budgets = (
        GoalBudget("turns", state.turns_used, most.turns),
        GoalBudget("tokens", count_tokens(usage) - count_tokens(before), most.tokens),
        GoalBudget("microdollars", usage.cost_microdollars - before.cost_microdollars, most.microdollars),
        GoalBudget("seconds", max(0, round(seconds.total_seconds())), most.seconds),
    )
    return [budget for budget in budgets if budget.limit]


def _to_verdict_view(judged: JudgedTurn) -> VerdictView:
    return VerdictView(judged.at, judged.label, judged.reason, judged.exit_code)


def _wake(session: WebSession) -> None:
    session.chat.conversation.wake()
    session.chat.conversation.follow()
