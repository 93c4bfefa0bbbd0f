"""What standing goals need of the program: their budget, a judge, and a place where a command proves something."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from functools import partial

from talaria.agent.auxiliary import Auxiliary
from talaria.app.toolsets import Workbench, sandbox_of
from talaria.contracts.tool import Deed, Effect
from talaria.core.errors import ToolFailed
from talaria.core.session_context import current_context, for_child
from talaria.goals.following import GoalFollower
from talaria.goals.goal import Allowance
from talaria.goals.judge import Judge
from talaria.goals.prompts import Evidence
from talaria.sessions.conversation import Desk
from talaria.settings.model import Goals
from talaria.tools.output import readable
from talaria.tools.terminal.processes import Child, Processes
from talaria.tools.terminal.shell import shell_argv
from talaria.tools.terminal.tool import Terminal

_MICRODOLLARS = 1_000_000
_GRACE = timedelta(seconds=1)
_KEPT_OUTPUT = 16_000


def goal_allowance(goals: Goals) -> Allowance:
    """Return what a goal may take unless it says so itself."""
    return Allowance(
        turns=goals.max_turns,
        tokens=goals.max_tokens,
        microdollars=round(goals.max_dollars * _MICRODOLLARS),
        seconds=goals.max_minutes * 60,
    )


def goal_follower(bench: Workbench, desk: Desk, auxiliary: Auxiliary, *, lasting: bool) -> GoalFollower:
    """Return what goes on with the goal of a conversation at its desk."""
    judge = Judge(
        bench.session_id,
        bench.store,
        partial(auxiliary.answer, budget=desk.budget),
        seconds=bench.settings.goals.judge_seconds,
        verify=Verification(bench, desk).run,
    )
    return GoalFollower(bench.session_id, store=bench.store, judge=judge, emit=desk.emit, lasting=lasting)


class Verification:
    """Implements `RunsCommand`: in the folder, the environment and the sandbox of the agent's own commands."""

    def __init__(self, bench: Workbench, desk: Desk) -> None:
        self._bench = bench
        self._desk = desk
        self._seconds = bench.settings.goals.verify_seconds
        self._processes = Processes()
        bench.closing.callback(self._processes.close)

    async def run(self, command: str, *, vouched: bool) -> Evidence:
        """Return how a command ended; what it started is ended with it, also when this is cancelled."""
        if not vouched:
            deed = Deed("command", command)
            verdict, reason = await self._desk.approver.decide(Terminal.name, Effect.IRREVERSIBLE, deed)
            if verdict == "deny":
                return Evidence(None, f"It was not allowed to run: {reason}")
        heard = bytearray()

        def hear(piece: bytes) -> None:
            heard.extend(piece)
            del heard[:-_KEPT_OUTPUT]

        try:
            child = await self._start(command, hear)
        except (OSError, ValueError, ToolFailed) as error:
            return Evidence(None, f"It could not be started: {error}")
        code, remark = await self._end_of(child)
        return Evidence(code, self._desk.mask(readable(bytes(heard))) + remark)

    async def _start(self, command: str, hear: Callable[[bytes], None]) -> Child:
        context = current_context() or self._desk.context
        folder, environment = self._desk.workspace.folder, for_child(self._desk.workspace.environment, context)
        sandbox = await asyncio.to_thread(sandbox_of, self._bench)
        argv = sandbox.wrap(shell_argv(command), folder) if sandbox else shell_argv(command)
        return await self._processes.start(argv, folder=folder, environment=environment, heard=hear)

    async def _end_of(self, child: Child) -> tuple[int | None, str]:
        """Return the exit code, or none and a remark behind a time-out."""
        try:
            async with asyncio.timeout(self._seconds):
                code = await child.wait()
            await child.hear_out()
        except TimeoutError:
            await child.end(_GRACE)
            return None, f"\n[stopped after {self._seconds} s]"
        finally:
            self._processes.finish(child)
        return code, ""
