"""`/steer`: let words join the running turn."""

from talaria.commands.command import Command, Errand
from talaria.core.errors import Refused
from talaria.core.messages import Text


async def run(errand: Errand) -> None:
    """Say the words to the running turn; where none is running, as usual."""
    if not errand.words:
        raise Refused("Say what the running turn should heed: `/steer use the other branch`.")
    was_busy = errand.seat.busy
    await errand.seat.put(Text(errand.words), steering=True)
    if was_busy:
        errand.place.show("It joins the running turn before its next step.")


COMMAND = Command(
    name="steer",
    category="Turn",
    help="Say something to the running turn, without stopping it.",
    hint="<text>",
    run=run,
)
