"""The tool that runs Python which calls the other tools."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from talaria.contracts.tool import Call, Deed, Effect, ToolOutput
from talaria.core.errors import ToolFailed
from talaria.core.session_context import for_child
from talaria.tools.code.child import Child, Output, Request, Wrap, running

CallTool = Callable[[str, str], Awaitable[ToolOutput]]
_HARMLESS = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")


class ExecuteCodeArguments(Struct, frozen=True):
    """The code and how long it may take."""

    code: Annotated[str, Meta(min_length=1)]
    seconds: Annotated[int, Meta(ge=1, le=600, description="Time limit without the tools")] = 60


class ExecuteCode:
    """Runs code in a child process of the conversation's folder.

    ``tools_of`` returns, for the call at hand, what runs another tool: its name and its arguments as JSON, just as
    a model would call it. ``wrap`` puts a sandbox around the command.
    """

    name = "execute_code"
    description = (
        "Run Python that can call your other tools, e.g. text = tools.read_file(path='a'). "
        "Good for many calls or much data: only what it prints comes back."
    )
    effect = Effect.IRREVERSIBLE
    arguments: type[Struct] = ExecuteCodeArguments

    def __init__(
        self,
        tools_of: Callable[[Call], CallTool],
        *,
        wrap: Wrap | None = None,
        most_calls: int = 50,
    ) -> None:
        self._tools_of = tools_of
        self._wrap = wrap
        self._most_calls = most_calls

    def deed(self, arguments: ExecuteCodeArguments) -> Deed:
        """Show the code."""
        return Deed("code", arguments.code)

    async def run(self, arguments: ExecuteCodeArguments, call: Call) -> ToolOutput:
        """Return what the code printed, or fail with that and with how it ended."""
        output = Output(call.progress)
        workspace = call.workspace
        environment = for_child(_harmless(workspace.environment), call.context)
        async with running(
            arguments.code, folder=workspace.folder, environment=environment, output=output, wrap=self._wrap
        ) as child:
            try:
                code = await self._finish(child, self._tools_of(call), arguments.seconds)
            except TimeoutError as error:
                raise ToolFailed(f"{output.text.strip()}\n[stopped after {arguments.seconds} s]".lstrip()) from error
        text = output.text.strip()
        if code:
            raise ToolFailed(f"{text}\n[exit code {code}]".lstrip())
        return ToolOutput(text or "(no output)")

    async def _finish(self, child: Child, call_tool: CallTool, seconds: int) -> int:
        """Wait for the end, answering meanwhile; time in which a tool runs is not the code's."""
        async with asyncio.timeout(seconds) as limit, asyncio.TaskGroup() as group:
            answering = group.create_task(self._answer(child, call_tool, limit))
            code = await child.wait()
            answering.cancel()
        return code

    async def _answer(self, child: Child, call_tool: CallTool, limit: asyncio.Timeout) -> None:
        count = 0
        while request := await child.next_request():
            count += 1
            left = (limit.when() or 0) - asyncio.get_running_loop().time()
            limit.reschedule(None)
            try:
                await child.answer(await self._called(request, call_tool, count))
            except ToolFailed as error:
                await child.answer(str(error), failed=True)
            limit.reschedule(asyncio.get_running_loop().time() + left)

    async def _called(self, request: Request, call_tool: CallTool, count: int) -> str:
        if count > self._most_calls:
            raise ToolFailed(f"code may call tools {self._most_calls} times at most")
        if request.name == self.name:
            raise ToolFailed("code cannot run code through this tool")
        return (await call_tool(request.name, msgspec.json.encode(request.arguments).decode())).text


def _harmless(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the few variables that a program needs and that hold no secret."""
    return {name: environment[name] for name in _HARMLESS if name in environment}
