"""A goal for tests: a real session, a scripted model that works on it, and another one that judges."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from tests.agent.agent_fixture import INFO, QUICK, AgentSession

from talaria.agent.auxiliary import Auxiliary
from talaria.agent.environment import Budget, UnlimitedBudget
from talaria.agent.model_calls import ModelCalls, ModelChoice
from talaria.contracts.clock import Clock
from talaria.core.events import Noticed, TurnEvent
from talaria.core.messages import Message, Text
from talaria.goals.follower import CommandRunner, GoalFollower, Judge
from talaria.goals.goal import GoalRecorder, GoalState
from talaria.goals.goal_manager import GoalManager
from talaria.runtime.runner import RunnerOptions, SessionRunner
from talaria.testing.model_server import Answer, Received, Say
from talaria.testing.wait import LIMIT

JUDGE = "judge"
DONE = '{"verdict": "done", "reason": "It is shown."}'
NOT_YET = '{"verdict": "continue", "reason": "One part is missing."}'


class GoalModels:
    """Scripted answers of the working model and of the judge, each in order, with defaults after the last one."""

    def __init__(self, agent_session: AgentSession) -> None:
        self.verdicts: deque[Answer | asyncio.Event] = deque()
        self.replies: deque[Answer] = deque()
        self.judged: list[Received] = []
        self.worked: list[Received] = []
        self._news = asyncio.Event()
        agent_session.server.answering(self._answer)

    def add_verdicts(self, *verdicts: str | Answer | asyncio.Event) -> None:
        """Give these verdicts next; after an event, the next verdict follows once the event is set."""
        self.verdicts.extend(Say(one) if isinstance(one, str) else one for one in verdicts)

    def add_replies(self, *replies: str | Answer) -> None:
        self.replies.extend(Say(one) if isinstance(one, str) else one for one in replies)

    async def until_judged(self, times: int = 1) -> None:
        """Wait until the judge has been called this many times."""
        async with asyncio.timeout(LIMIT):
            while len(self.judged) < times:
                self._news.clear()
                await self._news.wait()

    async def _answer(self, received: Received) -> Answer:
        if received.json["model"] != JUDGE:
            self.worked.append(received)
            return self.replies.popleft() if self.replies else Say(f"step {len(self.worked)}")
        self.judged.append(received)
        self._news.set()
        verdict = self.verdicts.popleft() if self.verdicts else Say(DONE)
        if isinstance(verdict, asyncio.Event):
            await verdict.wait()
            return await self._next_verdict()
        return verdict

    async def _next_verdict(self) -> Answer:
        verdict = self.verdicts.popleft()
        assert not isinstance(verdict, asyncio.Event)
        return verdict


class GoalSession:
    """One program with an open session that has a goal."""

    def __init__(
        self, agent_session: AgentSession, manager: GoalManager, follower: GoalFollower, runner: SessionRunner
    ) -> None:
        self.agent_session = agent_session
        self.manager = manager
        self.follower = follower
        self.runner = runner
        self.notices: list[str] = []
        self.news = asyncio.Event()

    async def set(self, text: str) -> None:
        await self.manager.set(text)
        self.begin()

    def begin(self) -> None:
        """Wake the runner, as a surface does when it opens a session, and commands when they have changed a goal."""
        self.runner.wake()
        self.runner.follow()

    async def say(self, text: str, external_id: str) -> None:
        message = Message(role="user", parts=(Text(text),), at=datetime.now(UTC))
        await self.runner.put(message, source="test", external_id=external_id)

    async def until_notice(self, part: str, times: int = 1) -> str:
        """Wait for a notice with this part in it."""
        async with asyncio.timeout(LIMIT):
            while True:
                found = [text for text in self.notices if part in text]
                if len(found) >= times:
                    return found[-1]
                self.news.clear()
                await self.news.wait()

    async def state(self) -> GoalState:
        state = await self.manager.load()
        assert state is not None
        return state

    def hear(self, event: TurnEvent) -> None:
        self.agent_session.events.append(event)
        if isinstance(event, Noticed):
            self.notices.append(event.text)
            self.news.set()


def make_judge(agent_session: AgentSession, *, budget: Budget | None = None, seconds: float = 5, **given: Any) -> Judge:
    """Return a judge that calls the scripted model."""
    choice = agent_session.calls.first
    auxiliary = Auxiliary(ModelCalls([ModelChoice(choice.provider, JUDGE, INFO)], QUICK), budget)
    return Judge(agent_session.session_id, agent_session.store, auxiliary.answer, seconds=seconds, **given)


@asynccontextmanager
async def open_goal_session(
    agent_session: AgentSession,
    *,
    clock: Clock | None = None,
    verify: CommandRunner | None = None,
    seconds: float = 5,
    lasting: bool = True,
    budget: Budget | None = None,
) -> AsyncIterator[GoalSession]:
    """Open the session, as a program does; leaving ends that program."""
    goal_sessions: list[GoalSession] = []

    def emit(event: TurnEvent) -> None:
        for goal_session in goal_sessions:
            goal_session.hear(event)

    judge = make_judge(agent_session, seconds=seconds, verify=verify, budget=budget)
    follower = GoalFollower(
        agent_session.session_id, store=agent_session.store, make_judge=lambda: judge, emit=emit, clock=clock
    )
    environment = agent_session.environment(publish=emit, budget=budget or UnlimitedBudget())
    options = RunnerOptions(
        follow_ups=(follower,) if lasting else (), listeners=() if lasting else (GoalRecorder(),), titled=False
    )
    async with asyncio.TaskGroup() as jobs:
        runner = SessionRunner(
            agent_session.store,
            agent_session.session_id,
            agent_session.agent(),
            environment,
            jobs,
            auxiliary=Auxiliary(agent_session.calls),
            options=options,
        )
        manager = GoalManager(agent_session.session_id, store=agent_session.store, judge=judge, clock=clock)
        goal_session = GoalSession(agent_session, manager, follower, runner)
        goal_sessions.append(goal_session)
        yield goal_session
        await runner.close()
