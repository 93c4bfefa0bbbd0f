"""`talaria doctor`: run all checks, suggest repairs and apply the safe ones."""

import argparse
import textwrap
from typing import Any

from msgspec import Struct

from talaria.cli.commands.doctor.agent_checks import (
    check_browser,
    check_model,
    check_model_offline,
    check_networks,
    check_networks_offline,
    check_sandbox,
    check_search,
    check_search_offline,
    check_tools,
)
from talaria.cli.commands.doctor.machine_checks import (
    check_extras,
    check_python,
    check_sqlite,
    check_store,
    check_terminal,
)
from talaria.cli.commands.doctor.profile_checks import (
    check_access,
    check_disk,
    check_files,
    check_keys,
    check_settings,
)
from talaria.cli.commands.doctor.report import DoctorCheck, Finding, State, fault
from talaria.cli.services import Services
from talaria.cli.terminal import Terminal
from talaria.core.errors import TalariaError

CHECKS = (
    DoctorCheck("python", check_python),
    DoctorCheck("files", check_files),
    DoctorCheck("settings", check_settings),
    DoctorCheck("keys", check_keys),
    DoctorCheck("model", check_model),
    DoctorCheck("tools", check_tools),
    DoctorCheck("search", check_search),
    DoctorCheck("sandbox", check_sandbox),
    DoctorCheck("browser", check_browser),
    DoctorCheck("networks", check_networks),
    DoctorCheck("access", check_access),
    DoctorCheck("store", check_store),
    DoctorCheck("disk", check_disk),
    DoctorCheck("sqlite", check_sqlite),
    DoctorCheck("extras", check_extras),
    DoctorCheck("terminal", check_terminal),
)

_OFFLINE = {"model": check_model_offline, "search": check_search_offline, "networks": check_networks_offline}
OFFLINE_CHECKS = tuple(DoctorCheck(check.name, _OFFLINE.get(check.name, check.probe)) for check in CHECKS)

_COLORS = {"ok": "green", "warning": "yellow", "fault": "red"}
_INDENT = " " * 19


class CheckResult(Struct, frozen=True):
    """Final findings of a check, and the repairs made."""

    name: str
    findings: list[Finding]
    repaired: list[str]

    @property
    def state(self) -> State:
        """The worst state of its findings."""
        return "fault" if self.count("fault") else "warning" if self.count("warning") else "ok"

    def count(self, state: str) -> int:
        """Return the number of findings in this state."""
        return sum(finding.state == state for finding in self.findings)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options for the report and for repairs."""
    parser.epilog = (
        "Exits with 1 if faults remain; warnings don't count. --fix only makes files\n"
        "private, creates missing folders and recovers a damaged store. The model's provider,\n"
        "each search engine and each chat network get one request that costs next to nothing,\n"
        "unless you add --offline."
    )
    parser.add_argument("--fix", action="store_true", help="fix what can be fixed safely")
    parser.add_argument(
        "--offline", action="store_true", help="don't contact the model's provider, search engines and chat networks"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace, services: Services) -> int:
    """Run all checks, print the report and return the exit code."""
    profile = services.profile
    results = []
    for check in OFFLINE_CHECKS if arguments.offline else CHECKS:
        result = examine(check, services, fix=arguments.fix)
        results.append(result)
        if not arguments.json:
            _print(result, services.terminal)
    if arguments.json:
        services.terminal.json([_as_data(result) for result in results])
    else:
        _print_summary(profile.name, results, services.terminal)
    return 1 if any(result.count("fault") for result in results) else 0


def examine(check: DoctorCheck, services: Services, *, fix: bool) -> CheckResult:
    """Run a check and, with ``fix``, the safe repairs."""
    findings = _run_check(check, services)
    if not fix or not any(finding.fix for finding in findings):
        return CheckResult(check.name, findings, [])
    repaired: list[str] = []
    failed: list[Finding] = []
    for finding in findings:
        if finding.fix is not None:
            try:
                repaired.append(finding.fix())
            except (TalariaError, OSError) as error:
                failed.append(fault(f"The fix failed: {_format_reason(error)}"))
    return CheckResult(check.name, [*_run_check(check, services), *failed], repaired)


def _run_check(check: DoctorCheck, services: Services) -> list[Finding]:
    try:
        return list(check.probe(services))
    except (TalariaError, OSError) as error:
        return [fault(f"This check failed: {_format_reason(error)}")]


def _format_reason(error: TalariaError | OSError) -> str:
    if isinstance(error, TalariaError):
        return error.for_owner
    return f"{error.strerror} ({error.filename})." if error.filename else f"{error.strerror}."


def _print(result: CheckResult, terminal: Terminal) -> None:
    for sentence in result.repaired:
        _print_line("repaired", "cyan", result.name, sentence, terminal)
    for finding in result.findings:
        _print_line(finding.state, _COLORS[finding.state], result.name, finding.found, terminal)
        if finding.repair:
            terminal.line(_wrap(f"{_INDENT}→ {finding.repair}", f"{_INDENT}  ", terminal))


def _print_line(state: str, color: str, name: str, sentence: str, terminal: Terminal) -> None:
    text = _wrap(f"{_INDENT}{sentence}", _INDENT, terminal)[len(_INDENT) :]
    terminal.line(f"{terminal.style(f'{state:<8}', color)} {name:<9} {text}")


def _wrap(text: str, indent: str, terminal: Terminal) -> str:
    """Return the text wrapped at words, with paths unbroken; unchanged if not for a terminal."""
    if not terminal.interactive:
        return text
    width = max(terminal.width, 2 * len(indent))
    return textwrap.fill(
        text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False, drop_whitespace=True
    )


def _print_summary(profile: str, results: list[CheckResult], terminal: Terminal) -> None:
    faults, warnings = (sum(result.count(state) for result in results) for state in ("fault", "warning"))
    fixable = sum(finding.fix is not None for result in results for finding in result.findings)
    counts = [f"{number} {noun}{'s' if number > 1 else ''}" for number, noun in _count_findings(faults, warnings)]
    sentence = f"{' and '.join(counts) or 'No problems'} in the profile {profile}."
    repair = f" `talaria doctor --fix` fixes {fixable} of them." if fixable else ""
    terminal.line()
    terminal.line(terminal.style(sentence, "red" if faults else "yellow" if warnings else "green", "bold") + repair)


def _count_findings(faults: int, warnings: int) -> list[tuple[int, str]]:
    return [(number, noun) for number, noun in ((faults, "fault"), (warnings, "warning")) if number]


def _as_data(result: CheckResult) -> dict[str, Any]:
    findings = [
        {"state": one.state, "found": one.found, "repair": one.repair or None, "fixable": one.fix is not None}
        for one in result.findings
    ]
    return {"check": result.name, "state": result.state, "findings": findings, "repaired": result.repaired}
