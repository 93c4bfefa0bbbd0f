"""Checks of the doctor for the web app, run on the profile of an open application."""

from talaria.app.application import TalariaApplication
from talaria.app.command_line.services import ProcessServices
from talaria.cli.commands.doctor.command import OFFLINE_CHECKS, CheckResult, examine
from talaria.cli.commands.doctor.report import State
from talaria.web.routes.inside import CheckFinding, CheckView

_NOT_HERE = frozenset({"terminal"})  # about the terminal of a command


def examine_profile(app: TalariaApplication) -> list[CheckView]:
    """Run the checks, without a request to the model's provider; blocks, and masks secrets."""
    services = ProcessServices(profile_name=app.profile.name, color="never", environment=app.environment)
    return [
        _to_view(examine(check, services, fix=False), app) for check in OFFLINE_CHECKS if check.name not in _NOT_HERE
    ]


def _to_view(result: CheckResult, app: TalariaApplication) -> CheckView:
    state: State = "fault" if result.count("fault") else "warning" if result.count("warning") else "ok"
    findings = [CheckFinding(one.state, app.mask(one.found), app.mask(one.repair)) for one in result.findings]
    return CheckView(result.name, state, findings)
