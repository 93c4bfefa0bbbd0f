"""Shared context of the `talaria cron` actions: requester and rules for jobs."""

from talaria.cli.services import Services
from talaria.contracts.jobs import JobRequester
from talaria.schedule.job_store import JobRules
from talaria.schedule.recurrence import system_zone

ASKER = JobRequester(everyone=True)
_NO_GATEWAY = (
    "No gateway is running, so jobs won't start. Run `talaria gateway start`, or have the "
    "system's cron call `talaria cron run-due` every minute."
)


def build_rules(services: Services) -> JobRules:
    """Return the time zone and the networks of the profile."""
    zone = services.settings().cli.time_zone or system_zone(services.environment)
    return JobRules(zone, tuple(services.networks().targets()))


def note_missing_gateway(services: Services, *, has_gateway: bool) -> None:
    """Print a note if no gateway is running, or if it does not start jobs."""
    if not has_gateway:
        services.terminal.note(_NO_GATEWAY)
    elif not services.settings().schedule.enabled:
        services.terminal.note(
            "The gateway doesn't start jobs because `schedule.enabled` is off. Run `talaria "
            "config set schedule.enabled true`."
        )
