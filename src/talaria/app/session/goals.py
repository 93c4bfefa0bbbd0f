"""Goals of a session: default allowance, follower, and execution of the verify command."""

import asyncio
from datetime import timedelta

from talaria.agent.auxiliary import Auxiliary
from talaria.agent.environment import TurnEnvironment
from talaria.app.session.toolsets import ToolContext, build_sandbox
from talaria.contracts.sandbox import SandboxCommand, SandboxedCall
from talaria.contracts.tool import Effect, ProposedAction
from talaria.core.errors import ToolFailed
from talaria.core.session_context import SessionContext, child_environment, current_context
from talaria.goals.follower import Judge
from talaria.goals.goal import Allowance
from talaria.goals.transitions import Evidence
from talaria.settings.model import GoalSettings
from talaria.tools.output import make_readable
from talaria.tools.sandbox.client_program import end_inside
from talaria.tools.terminal.shell import Child, Processes, build_shell_argv
from talaria.tools.terminal.tool import Terminal

_MICRODOLLARS = 1_000_000
_KILL_GRACE = timedelta(seconds=1)
_MAX_OUTPUT = 16_000


def build_goal_allowance(goals: GoalSettings) -> Allowance:
    """Return the default limits of a goal."""
    return Allowance(
        turns=goals.max_turns,
        tokens=goals.max_tokens,
        microdollars=round(goals.max_dollars * _MICRODOLLARS),
        seconds=goals.max_minutes * 60,
    )


def make_judge(tool_context: ToolContext, environment: TurnEnvironment, auxiliary: Auxiliary) -> Judge:
    """Return the judge of a session's goal; it is made for the first verdict."""
    return Judge(
        tool_context.session_id,
        tool_context.store,
        auxiliary.answer,
        seconds=tool_context.settings.goals.judge_seconds,
        verify=VerificationRunner(tool_context, environment).run,
        has_price=auxiliary.has_price,
    )


class VerificationRunner:
    """Runner of verify commands in the folder, environment and sandbox of the agent's own commands.

    Implements `CommandRunner`.
    """

    def __init__(self, tool_context: ToolContext, environment: TurnEnvironment) -> None:
        self._tool_context = tool_context
        self._environment = environment
        self._seconds = tool_context.settings.goals.verify_seconds
        self._processes = Processes()
        tool_context.closing.callback(self._processes.close)

    async def run(self, command: str, *, vouched: bool) -> Evidence:
        """Run a command and return how it ended; its processes end with it, also on cancellation.

        Unless ``vouched``, the command needs an approval.
        """
        if not vouched:
            action = ProposedAction("command", command)
            verdict, reason = await self._environment.approver.decide(Terminal.name, Effect.IRREVERSIBLE, action)
            if verdict == "deny":
                return Evidence(None, f"It wasn't allowed to run: {reason}")
        output = bytearray()

        def keep_tail(piece: bytes) -> None:
            output.extend(piece)
            del output[:-_MAX_OUTPUT]

        sandbox = build_sandbox(self._tool_context)
        try:
            launch = await self._launch(command)
            child = await self._processes.start(
                launch.argv, folder=launch.folder, environment=launch.environment, on_output=keep_tail
            )
        except (OSError, ValueError, ToolFailed) as error:
            return Evidence(None, f"It couldn't be started: {error}")
        code, note = await self._wait_for_exit(child, launch)
        printed = self._environment.mask(make_readable(bytes(output)))
        limits = "".join(f"\n[{one}]" for one in sandbox.remarks(printed, code)) if sandbox else ""
        return Evidence(code, printed + note + limits)

    async def _launch(self, command: str) -> SandboxedCall:
        """Return the call of the shell, in the sandbox if there is one; raises `ToolFailed`."""
        workspace, sandbox = self._environment.workspace, build_sandbox(self._tool_context)
        environment = child_environment(workspace.environment, current_context() or SessionContext())
        if sandbox is None:
            return SandboxedCall(tuple(build_shell_argv(command)), workspace.folder, environment)
        await sandbox.start()
        return sandbox.call(
            SandboxCommand(build_shell_argv(command, sandbox.programs), sandbox.folder(workspace), environment)
        )

    async def _wait_for_exit(self, child: Child, launch: SandboxedCall) -> tuple[int | None, str]:
        """Return the exit code, or ``None`` and a note after a timeout."""
        try:
            async with asyncio.timeout(self._seconds):
                code = await child.wait()
            await child.wait_for_output_end()
        except TimeoutError:
            await child.end(_KILL_GRACE)
            await end_inside(launch.end, launch.environment)
            return None, f"\n[stopped after {self._seconds} s]"
        except asyncio.CancelledError:
            await end_inside(launch.end, launch.environment)
            raise
        finally:
            self._processes.finish(child)
        return code, ""
