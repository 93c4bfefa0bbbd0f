"""`talaria doctor`: look at everything that can be wrong, say how to repair it, and repair what is safe."""

import argparse
import textwrap
from typing import Any

from msgspec import Struct

from talaria.cli.checks.abilities import look_at_model, look_at_model_offline, look_at_sandbox, look_at_tools
from talaria.cli.checks.access import look_at_access
from talaria.cli.checks.configuration import look_at_keys, look_at_settings
from talaria.cli.checks.files import look_at_disk, look_at_files
from talaria.cli.checks.findings import Check, Finding, fault
from talaria.cli.checks.machine import look_at_extras, look_at_python, look_at_sqlite, look_at_terminal
from talaria.cli.checks.store import look_at_store
from talaria.cli.services import Services
from talaria.cli.terminal import Terminal
from talaria.core.errors import TalariaError

CHECKS = (
    Check("python", look_at_python),
    Check("files", look_at_files),
    Check("settings", look_at_settings),
    Check("keys", look_at_keys),
    Check("model", look_at_model),
    Check("tools", look_at_tools),
    Check("sandbox", look_at_sandbox),
    Check("access", look_at_access),
    Check("store", look_at_store),
    Check("disk", look_at_disk),
    Check("sqlite", look_at_sqlite),
    Check("extras", look_at_extras),
    Check("terminal", look_at_terminal),
)

OFFLINE_CHECKS = tuple(
    Check(check.name, look_at_model_offline) if check.look is look_at_model else check for check in CHECKS
)

_COLORS = {"ok": "green", "warning": "yellow", "fault": "red"}
_INDENT = " " * 19


class Result(Struct, frozen=True):
    """What a check found in the end, and what was repaired before."""

    name: str
    findings: list[Finding]
    mended: list[str]

    def count(self, state: str) -> int:
        """Return how many findings are of this state."""
        return sum(finding.state == state for finding in self.findings)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take how to report, and whether to repair."""
    parser.epilog = (
        "The exit code is 1 if a fault is left, warnings do not count. --fix makes files\n"
        "private, creates missing folders and recovers a damaged store, no more. The model's\n"
        "provider gets one request that costs next to nothing, unless --offline is given."
    )
    parser.add_argument("--fix", action="store_true", help="repair what can be repaired safely")
    parser.add_argument("--offline", action="store_true", help="don't ask the model's provider whether it answers")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace, services: Services) -> int:
    """Look at everything, report it, and return whether a fault is left."""
    profile = services.profile
    results = []
    for check in OFFLINE_CHECKS if arguments.offline else CHECKS:
        result = _examine(check, services, fix=arguments.fix)
        results.append(result)
        if not arguments.json:
            _print(result, services.terminal)
    if arguments.json:
        services.terminal.json([_as_data(result) for result in results])
    else:
        _sum_up(profile.name, results, services.terminal)
    return 1 if any(result.count("fault") for result in results) else 0


def _examine(check: Check, services: Services, *, fix: bool) -> Result:
    findings = _look(check, services)
    if not fix or not any(finding.mend for finding in findings):
        return Result(check.name, findings, [])
    mended: list[str] = []
    failed: list[Finding] = []
    for finding in findings:
        if finding.mend is not None:
            try:
                mended.append(finding.mend())
            except (TalariaError, OSError) as error:
                failed.append(fault(f"The repair failed: {_reason(error)}"))
    return Result(check.name, [*_look(check, services), *failed], mended)


def _look(check: Check, services: Services) -> list[Finding]:
    try:
        return list(check.look(services))
    except (TalariaError, OSError) as error:
        return [fault(f"This could not be looked at: {_reason(error)}")]


def _reason(error: TalariaError | OSError) -> str:
    if isinstance(error, TalariaError):
        return error.for_owner
    return f"{error.strerror} ({error.filename})." if error.filename else f"{error.strerror}."


def _print(result: Result, terminal: Terminal) -> None:
    for sentence in result.mended:
        _print_line("repaired", "cyan", result.name, sentence, terminal)
    for finding in result.findings:
        _print_line(finding.state, _COLORS[finding.state], result.name, finding.found, terminal)
        if finding.repair:
            terminal.line(_wrapped(f"{_INDENT}→ {finding.repair}", f"{_INDENT}  ", terminal))


def _print_line(state: str, color: str, name: str, sentence: str, terminal: Terminal) -> None:
    text = _wrapped(f"{_INDENT}{sentence}", _INDENT, terminal)[len(_INDENT) :]
    terminal.line(f"{terminal.styled(f'{state:<8}', color)} {name:<9} {text}")


def _wrapped(text: str, indent: str, terminal: Terminal) -> str:
    """Return the text in lines that fit, words and paths unbroken; as it is where no person reads."""
    if not terminal.interactive:
        return text
    width = max(terminal.width, 2 * len(indent))
    return textwrap.fill(
        text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False, drop_whitespace=True
    )


def _sum_up(profile: str, results: list[Result], terminal: Terminal) -> None:
    faults, warnings = (sum(result.count(state) for result in results) for state in ("fault", "warning"))
    mendable = sum(finding.mend is not None for result in results for finding in result.findings)
    counts = [f"{number} {noun}{'s' if number > 1 else ''}" for number, noun in _counted(faults, warnings)]
    sentence = f"{' and '.join(counts) or 'All is well'} in the profile {profile}."
    repair = f" `talaria doctor --fix` repairs {mendable} of them." if mendable else ""
    terminal.line()
    terminal.line(terminal.styled(sentence, "red" if faults else "yellow" if warnings else "green", "bold") + repair)


def _counted(faults: int, warnings: int) -> list[tuple[int, str]]:
    return [(number, noun) for number, noun in ((faults, "fault"), (warnings, "warning")) if number]


def _as_data(result: Result) -> dict[str, Any]:
    findings = [
        {"state": one.state, "found": one.found, "repair": one.repair or None, "fixable": one.mend is not None}
        for one in result.findings
    ]
    state = next((state for state in ("fault", "warning") if result.count(state)), "ok")
    return {"check": result.name, "state": state, "findings": findings, "repaired": result.mended}
