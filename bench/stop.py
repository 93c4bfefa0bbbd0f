"""Delay until a cancelled command and all its child processes have ended."""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from bench.measure import Measurement
from talaria.contracts.tool import Call
from talaria.core.ids import SessionId
from talaria.tools.output import FullOutputs
from talaria.tools.terminal.shell import Processes
from talaria.tools.terminal.tool import Terminal, TerminalArguments
from talaria.tools.workspace import LocalWorkspace

NAME = "stop"
_GOAL = 200.0
_TREES = {
    "a child in the background": "sleep 600 & touch up; wait",
    "a shell inside a shell": "bash -c 'bash -c \"touch up; sleep 600; :\"; :'",
    "a process that ignores signals": "trap '' TERM INT HUP; touch up; while :; do sleep 600; done",
    "a process that keeps forking": "(trap '' TERM; while :; do (sleep 600) & sleep 0.01; done) & touch up; wait",
}


class _SilentPerson:
    """Person who answers no question."""

    async def ask(self, question: str, choices: tuple[str, ...] = ()) -> str | None:
        return None


def run(quick: bool) -> list[Measurement]:
    """Stop each kind of process tree repeatedly, and return the longest delays."""
    rounds = 3 if quick else 15
    return [
        Measurement(f"{name}: ended, worst of {rounds}", asyncio.run(_measure_worst(command, rounds)), "ms", _GOAL)
        for name, command in _TREES.items()
    ]


async def _measure_worst(command: str, rounds: int) -> float:
    worst = 0.0
    for _ in range(rounds):
        with TemporaryDirectory() as folder:
            worst = max(worst, await _time_stop(command, Path(folder)))
    return worst


async def _time_stop(command: str, folder: Path) -> float:
    workspace = LocalWorkspace(folder, {"PATH": "/usr/bin:/bin"})
    call = Call(
        id="1", session_id=SessionId("s"), workspace=workspace, person=_SilentPerson(), progress=lambda text: None
    )  # fmt: skip
    terminal = Terminal(Processes(), FullOutputs(folder / "outputs"))
    running = asyncio.ensure_future(terminal.run(TerminalArguments(command=command), call))
    while not (folder / "up").exists():  # noqa: ASYNC110 - nothing signals that the file exists
        await asyncio.sleep(0.01)
    began = perf_counter()
    running.cancel()
    await asyncio.wait([running])
    return 1000 * (perf_counter() - began)
