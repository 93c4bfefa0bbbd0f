"""What is reported of background processes, in words for a model."""

import re
from collections.abc import Sequence

from talaria.contracts.processes import BackgroundProcess, named, outcome


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
