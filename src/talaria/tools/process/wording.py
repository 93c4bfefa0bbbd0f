"""Background processes in words, for a model."""

import re
import signal
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from talaria.contracts.processes import BackgroundProcess

_LONGEST_COMMAND = 120
_SIGNALLED = 128


def named(process: BackgroundProcess) -> str:
    """Return how a sentence begins that is about a process."""
    command = " ".join(process.command.split())
    short = command if len(command) <= _LONGEST_COMMAND else command[: _LONGEST_COMMAND - 1] + "…"
    return f"Background process {process.id} ({short})"


def outcome(process: BackgroundProcess) -> str:
    """Return how it ended, or that it runs, as the rest of a sentence."""
    match process.state:
        case "starting" | "running":
            return f"runs, for {lasted(process)} so far"
        case "ended":
            return f"ended with {in_words(process.code or 0)} after {lasted(process)}"
        case "killed":
            return f"was killed after {lasted(process)}"
        case "lost":
            return f"is gone without an exit code, after at most {lasted(process)}"


def in_words(code: int) -> str:
    """Return an exit code with the signal that it stands for."""
    try:
        return f"exit code {code} ({signal.Signals(code - _SIGNALLED).name})"
    except ValueError:
        return f"exit code {code}"


def lasted(process: BackgroundProcess, now: datetime | None = None) -> str:
    """Return how long it has run."""
    seconds = round(((process.ended_at or now or datetime.now(UTC)) - process.begun_at) / timedelta(seconds=1))
    if seconds < 120:
        return f"{seconds} s"
    minutes = seconds // 60
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def end_notice(process: BackgroundProcess, last_lines: str) -> str:
    """Return what is reported of an end."""
    by = ", by the person" if process.ended_by == "person" else ""
    return f"{named(process)} {outcome(process)}{by}.{_shown('Its last lines', last_lines)}"


def match_notice(process: BackgroundProcess, lines: Sequence[str], left_out: int, *, last: bool) -> str:
    """Return what is reported of lines that were watched for."""
    more = f"\n({left_out} more such lines are left out.)" if left_out else ""
    muted = "\nThis happens too often: from now on no more lines of it are reported." if last else ""
    return f"{named(process)} printed what you watch for.{_shown('Lines', chr(10).join(lines))}{more}{muted}"


def _shown(heading: str, text: str) -> str:
    if not text.strip():
        return " It printed nothing." if heading != "Lines" else ""
    fence = "`" * max(3, 1 + max(map(len, re.findall(r"`+", text)), default=0))
    return f" {heading}:\n{fence}\n{text}\n{fence}"
