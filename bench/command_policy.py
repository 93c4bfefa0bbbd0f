"""Time of the approval policy for long commands, which should grow linearly with their length."""

from pathlib import Path
from statistics import median
from time import process_time

from bench.measure import Measurement
from talaria.agent.approval.policy import ApprovalPolicy
from talaria.contracts.tool import Effect, ProposedAction
from talaria.tools.workspace import LocalWorkspace

NAME = "command-policy"
PIECES = ("$(", "(", "`", "a ", "{a,b}", "x=$x;")
_SHORT, _LONG = 10_000, 40_000


def run(quick: bool) -> list[Measurement]:
    """Judge command lines of repeated pieces, and lines four times as long."""
    rounds = 3 if quick else 9
    return [
        Measurement(
            f"command of {_LONG} times `{piece}` vs {_SHORT}",
            _milliseconds(piece * _LONG, rounds),
            "ms",
            1.5 * _LONG / _SHORT,
            floor=_milliseconds(piece * _SHORT, rounds),
        )
        for piece in PIECES
    ]


def _milliseconds(line: str, rounds: int) -> float:
    home = Path("/homes/person")
    policy, workspace = ApprovalPolicy(home=home), LocalWorkspace(home / "project", {"HOME": str(home)})
    times = []
    for _ in range(rounds):
        began = process_time()
        policy.judge("terminal", Effect.IRREVERSIBLE, ProposedAction("command", line), workspace, ())
        times.append(1000 * (process_time() - began))
    return median(times)
