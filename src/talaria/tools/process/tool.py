"""The process tool: manage background processes."""

from pathlib import Path
from typing import Annotated, Literal, assert_never

from msgspec import Meta, Struct

from talaria.contracts.background_processes import BackgroundProcess, BackgroundWork, describe_outcome, process_label
from talaria.contracts.tool import Call, Effect, ProposedAction, ToolOutput
from talaria.core.errors import ToolFailed
from talaria.tools.output import OUTPUT_LIMIT, cut_output

_MOST_LISTED = 30
_FEW_LINES = 10
_SPARE = 200  # what readable output leaves out


class ProcessArguments(Struct, frozen=True):
    """An action on a background process."""

    action: Literal["list", "poll", "wait", "log", "write", "close_stdin", "kill"]
    id: str = ""
    text: Annotated[str, Meta(description="text to write, including the newline")] = ""
    seconds: Annotated[int, Meta(ge=1, le=600, description="seconds to wait")] = 60
    lines: Annotated[int, Meta(ge=1, le=2000, description="lines from the end of the log")] = 100


class Process:
    """Manages the background processes of a session."""

    name = "process"
    description = "Manage this conversation's background processes, started with terminal."
    effect = Effect.IDEMPOTENT
    arguments = ProcessArguments

    def __init__(self, background: BackgroundWork) -> None:
        self._background = background

    def proposed_action(self, arguments: ProcessArguments) -> ProposedAction:
        """Describe the action; written text may be read by a shell."""
        if arguments.action == "write":
            return ProposedAction("command", arguments.text)
        return ProposedAction("other", f"{arguments.action} {arguments.id}".strip())

    async def run(self, arguments: ProcessArguments, call: Call) -> ToolOutput:
        """Carry out the action and return the state of the process."""
        processes = await self._background.of_session(call.session_id)
        if arguments.action == "list":
            return ToolOutput(_format_list(processes))
        process = next((one for one in processes if one.id == arguments.id), None)
        if process is None:
            raise ToolFailed(f"This conversation has no background process {arguments.id or 'without an id'}.")
        return ToolOutput(await self._run_action(arguments, process, call))

    async def _run_action(self, arguments: ProcessArguments, process: BackgroundProcess, call: Call) -> str:
        match arguments.action:
            case "poll" | "list":
                return _describe_process(process, _FEW_LINES)
            case "wait":
                return _describe_process(await self._background.wait(process, arguments.seconds, call.id), _FEW_LINES)
            case "log":
                return _describe_process(process, arguments.lines)
            case "write":
                await self._background.write(process, arguments.text, call.id)
                return f"Written to {process.id}."
            case "close_stdin":
                await self._background.close_input(process)
                return f"Closed the input of {process.id}."
            case "kill":
                return f"{process_label(process)} {describe_outcome(await self._background.kill(process, 'agent'))}."
            case _:
                assert_never(arguments.action)


def _format_list(processes: list[BackgroundProcess]) -> str:
    lines = [f"{process_label(process)} {describe_outcome(process)}." for process in processes[-_MOST_LISTED:]]
    return "\n".join(lines) or "No background processes."


def _describe_process(process: BackgroundProcess, lines: int) -> str:
    from talaria.tools.process.lifecycle import ProcessFiles  # noqa: PLC0415 (loaded for a process)

    files = ProcessFiles(Path(process.files_folder))
    text = cut_output(files.read_last_lines(lines, 4 * OUTPUT_LIMIT))
    more = f"Full log, as far as it was saved: {files.out}" if files.size > len(text) + _SPARE else ""
    return "\n".join(
        filter(None, (f"{process_label(process)} {describe_outcome(process)}.", text or "(no output)", more))
    )
