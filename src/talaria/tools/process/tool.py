"""The tool that looks after background processes."""

from pathlib import Path
from typing import Annotated, Literal, assert_never

from msgspec import Meta, Struct

from talaria.contracts.processes import BackgroundProcess, BackgroundWork, named, outcome
from talaria.contracts.tool import Call, Deed, Effect, ToolOutput
from talaria.core.errors import ToolFailed
from talaria.tools.output import OUTPUT_LIMIT, cut_output
from talaria.tools.process.files import ProcessFiles

_MOST_LISTED = 30
_FEW_LINES = 10
_SPARE = 200  # what is left out to make it readable


class ProcessArguments(Struct, frozen=True):
    """What to do, with which one."""

    action: Literal["list", "poll", "wait", "log", "write", "close_stdin", "kill"]
    id: str = ""
    text: Annotated[str, Meta(description="to write, newline included")] = ""
    seconds: Annotated[int, Meta(ge=1, le=600, description="to wait")] = 60
    lines: Annotated[int, Meta(ge=1, le=2000, description="of the log, from its end")] = 100


class Process:
    """Looks after the background processes of a conversation."""

    name = "process"
    description = "Background processes of this conversation, started with terminal."
    effect = Effect.IDEMPOTENT
    arguments = ProcessArguments

    def __init__(self, background: BackgroundWork) -> None:
        self._background = background

    def deed(self, arguments: ProcessArguments) -> Deed:
        """Say what would be done; what is written may be read by a shell."""
        if arguments.action == "write":
            return Deed("command", arguments.text)
        return Deed("other", f"{arguments.action} {arguments.id}".strip())

    async def run(self, arguments: ProcessArguments, call: Call) -> ToolOutput:
        """Do it, and return how the process is."""
        processes = await self._background.of_session(call.session_id)
        if arguments.action == "list":
            return ToolOutput(_listed(processes))
        process = next((one for one in processes if one.id == arguments.id), None)
        if process is None:
            raise ToolFailed(f"This conversation has no background process {arguments.id or 'without an id'}.")
        return ToolOutput(await self._done(arguments, process, call))

    async def _done(self, arguments: ProcessArguments, process: BackgroundProcess, call: Call) -> str:
        match arguments.action:
            case "poll" | "list":
                return _told(process, _FEW_LINES)
            case "wait":
                return _told(await self._background.wait(process, arguments.seconds, call.id), _FEW_LINES)
            case "log":
                return _told(process, arguments.lines)
            case "write":
                await self._background.write(process, arguments.text, call.id)
                return f"Written to {process.id}."
            case "close_stdin":
                await self._background.close_input(process)
                return f"The input of {process.id} is closed."
            case "kill":
                return f"{named(process)} {outcome(await self._background.kill(process, 'agent'))}."
            case _:
                assert_never(arguments.action)


def _listed(processes: list[BackgroundProcess]) -> str:
    lines = [f"{named(process)} {outcome(process)}." for process in processes[-_MOST_LISTED:]]
    return "\n".join(lines) or "There are none."


def _told(process: BackgroundProcess, lines: int) -> str:
    files = ProcessFiles(Path(process.place))
    text = cut_output(files.last_lines(lines, 4 * OUTPUT_LIMIT))
    more = f"All of it, as far as it was kept: {files.out}" if files.size > len(text) + _SPARE else ""
    return "\n".join(filter(None, (f"{named(process)} {outcome(process)}.", text or "(no output)", more)))
