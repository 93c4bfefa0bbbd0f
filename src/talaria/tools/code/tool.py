"""The execute_code tool: run Python that can call the other tools."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta, Struct

from talaria.contracts.sandbox import Sandbox, SandboxCommand, SandboxedCall
from talaria.contracts.tool import Call, Effect, ProposedAction, ToolOutput
from talaria.core.errors import ToolFailed
from talaria.core.session_context import child_environment

if TYPE_CHECKING:  # loaded with the first call
    from talaria.tools.code.child import Child, Request

CallTool = Callable[[str, str], Awaitable[ToolOutput]]
_HARMLESS = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")


class ExecuteCodeArguments(Struct, frozen=True):
    """The code and its time limit."""

    code: Annotated[str, Meta(min_length=1)]
    seconds: Annotated[int, Meta(ge=1, le=600, description="Time limit, not counting tool calls")] = 60


class ExecuteCode:
    """Runs code in a child process in the session's folder.

    ``tools_of`` returns, for a call, the function that runs another tool: its name and its arguments as JSON, just as a
    model would call it. The child runs in the ``sandbox`` if there is one.
    """

    name = "execute_code"
    description = (
        "Run Python that can call your other tools, e.g. text = tools.read_file(path='a'). Good for many calls "
        "or large data: only what it prints is returned."
    )
    effect = Effect.IRREVERSIBLE
    arguments: type[Struct] = ExecuteCodeArguments

    def __init__(
        self,
        tools_of: Callable[[Call], CallTool],
        *,
        sandbox: Sandbox | None = None,
        most_calls: int = 50,
    ) -> None:
        self._tools_of = tools_of
        self._sandbox = sandbox
        self._most_calls = most_calls

    def proposed_action(self, arguments: ExecuteCodeArguments) -> ProposedAction:
        """Show the code."""
        return ProposedAction("code", arguments.code)

    async def run(self, arguments: ExecuteCodeArguments, call: Call) -> ToolOutput:
        """Return what the code printed, or fail with that and the exit code."""
        from talaria.tools.code.child import Output, running  # noqa: PLC0415 (loaded with the first call)

        output = Output(call.progress)
        workspace = call.workspace
        environment = child_environment(_filter_variables(workspace.environment), call.context)
        sandbox, calls = self._sandbox, list[SandboxedCall]()
        if sandbox is not None:
            await sandbox.start()

        def launch(argv: list[str]) -> SandboxedCall:
            if sandbox is None:
                return SandboxedCall(tuple(argv), workspace.folder, environment)
            calls.append(sandbox.call(SandboxCommand(argv, sandbox.folder(workspace), environment)))
            return calls[-1]

        programs = sandbox.programs if sandbox else None
        try:
            async with running(arguments.code, launch=launch, output=output, programs=programs) as child:
                code = await self._finish(child, self._tools_of(call), arguments.seconds)
        except TimeoutError as error:
            await self._end_inside(calls)
            raise ToolFailed(f"{output.text.strip()}\n[stopped after {arguments.seconds} s]".lstrip()) from error
        except asyncio.CancelledError:
            await self._end_inside(calls)
            raise
        text = output.text.strip()
        if code:
            remarks = self._sandbox.remarks(text, code) if self._sandbox else ()
            raise ToolFailed("\n".join((text, *(f"[{one}]" for one in remarks), f"[exit code {code}]")).lstrip())
        return ToolOutput(text or "(no output)")

    async def _end_inside(self, calls: list[SandboxedCall]) -> None:
        from talaria.tools.sandbox.client_program import end_inside  # noqa: PLC0415 (loaded where it is needed)

        for call in calls:
            await end_inside(call.end, call.environment)

    async def _finish(self, child: "Child", call_tool: CallTool, seconds: int) -> int:
        """Wait for the end while answering calls; the time a tool takes is not counted."""
        async with asyncio.timeout(seconds) as limit, asyncio.TaskGroup() as group:
            answering = group.create_task(self._answer(child, call_tool, limit))
            code = await child.wait()
            answering.cancel()
        return code

    async def _answer(self, child: "Child", call_tool: CallTool, limit: asyncio.Timeout) -> None:
        count = 0
        while request := await child.receive_request():
            count += 1
            left = (limit.when() or 0) - asyncio.get_running_loop().time()
            limit.reschedule(None)
            try:
                await child.answer(await self._run_tool(request, call_tool, count))
            except ToolFailed as error:
                await child.answer(str(error), failed=True)
            limit.reschedule(asyncio.get_running_loop().time() + left)

    async def _run_tool(self, request: "Request", call_tool: CallTool, count: int) -> str:
        if count > self._most_calls:
            raise ToolFailed(f"code may make at most {self._most_calls} tool calls")
        if request.name == self.name:
            raise ToolFailed("code can't call this tool")
        return (await call_tool(request.name, msgspec.json.encode(request.arguments).decode())).text


def _filter_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the few variables that a program needs and that contain no secret."""
    return {name: environment[name] for name in _HARMLESS if name in environment}
