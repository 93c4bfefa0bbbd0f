"""What every action of `talaria cron` needs: as whom it asks, and what jobs are made by."""

from talaria.cli.services import Services
from talaria.contracts.schedules import Asker
from talaria.schedule.keeping import Rules
from talaria.schedule.zones import system_zone

ASKER = Asker(everyone=True)
_NO_GATEWAY = (
    "No gateway is running, and without one nothing is started: `talaria gateway start`, or let the system's cron call"
    " `talaria cron run-due` every minute."
)


def rules(services: Services) -> Rules:
    """Return the zone of the profile and its networks."""
    zone = services.settings().cli.time_zone or system_zone(services.environment)
    return Rules(zone, tuple(services.networks().names()))


def tell_of_gateway(services: Services, *, served: bool) -> None:
    """Say so where nobody starts jobs."""
    if not served:
        services.terminal.note(_NO_GATEWAY)
    elif not services.settings().schedule.enabled:
        services.terminal.note("The gateway starts no jobs: `talaria config set schedule.enabled true` lets it.")
