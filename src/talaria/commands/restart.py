"""`/restart`: let the gateway begin anew."""

from talaria.commands.command import Command, Errand
from talaria.core.errors import Refused


async def run(errand: Errand) -> None:
    """Begin anew as soon as running turns have ended, and say so here when that is done."""
    if errand.service is None or errand.place.address is None:
        raise Refused("Only a gateway can be restarted, from a chat.")
    seconds = await errand.service.restart(errand.seat.session_id, errand.place.address)
    errand.place.show(
        f"The gateway restarts. Turns that run have {seconds:.0f} s to end; what is not finished goes on then."
    )


COMMAND = Command(
    name="restart",
    category="Program",
    help="Let the gateway begin anew; it says here when it is back.",
    where="chat",
    who="owner",
    run=run,
)
