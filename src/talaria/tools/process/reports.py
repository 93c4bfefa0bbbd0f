"""Reports to a session about its background processes."""

import re
from collections.abc import Sequence
from typing import Protocol

from talaria.contracts.background_processes import BackgroundProcess, describe_outcome, process_label
from talaria.contracts.store import Transaction


class Reporter(Protocol):
    """The sender of reports."""

    def report(self, tx: Transaction, process: BackgroundProcess, name: str, text: str) -> None:
        """Queue a report to the session of a process, once per name."""

    def hear(self, tx: Transaction, process: BackgroundProcess, names: Sequence[str], call_id: str) -> None:
        """Withdraw the reports with these names, because a tool call returns their content."""


def end_name(process: BackgroundProcess) -> str:
    """Return the name of the report of its end."""
    return f"{process.id}:end"


def match_name(process: BackgroundProcess, number: int) -> str:
    """Return the name of a report of watched lines."""
    return f"{process.id}:match:{number}"


def end_notice(process: BackgroundProcess, last_lines: str) -> str:
    """Return the report of its end."""
    by = ", by the user" if process.ended_by == "person" else ""
    return f"{process_label(process)} {describe_outcome(process)}{by}.{_shown('Its last lines', last_lines)}"


def match_notice(process: BackgroundProcess, lines: Sequence[str], left_out: int, *, last: bool) -> str:
    """Return the report of watched lines."""
    more = f"\n({left_out} more matching lines omitted.)" if left_out else ""
    muted = "\nToo many matches: further lines of this process won't be reported." if last else ""
    return f"{process_label(process)} printed a line you watch for.{_shown('Lines', chr(10).join(lines))}{more}{muted}"


def _shown(heading: str, text: str) -> str:
    if not text.strip():
        return " It printed nothing." if heading != "Lines" else ""
    fence = "`" * max(3, 1 + max(map(len, re.findall(r"`+", text)), default=0))
    return f" {heading}:\n{fence}\n{text}\n{fence}"
