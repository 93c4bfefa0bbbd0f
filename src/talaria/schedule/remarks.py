"""What whoever schedules something should know: that nothing starts it, or that nobody hears of it."""

from collections.abc import Collection

from talaria.contracts.store import Transaction
from talaria.schedule.delivering import places
from talaria.schedule.plan import Scheduled
from talaria.sessions.homes import gateway_alive

NO_GATEWAY = "No gateway is running, and without one nothing is started."
NOBODY = "Nobody is told what it says, for there is no home chat: `/sethome` in a chat makes it one."


def remarks(tx: Transaction, scheduled: Scheduled, networks: Collection[str]) -> tuple[str, ...]:
    """Return a sentence for each thing that keeps a job from being of use."""
    plan = scheduled.plan
    unheard = not plan.quiet and not places(tx, plan, networks)
    return (*([] if gateway_alive(tx) else [NO_GATEWAY]), *([NOBODY] if unheard else []))
