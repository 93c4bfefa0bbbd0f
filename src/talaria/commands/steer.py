"""`/steer`: let words join the running turn."""

from datetime import UTC, datetime

from talaria.commands.command import Command, Errand
from talaria.core.errors import Refused
from talaria.core.messages import Message, Text
from talaria.sessions.live_speaking import say_there


async def run(errand: Errand) -> None:
    """Say the words to the turn that runs, here or in another process; where none is running, as usual."""
    if not errand.words:
        raise Refused("Say what the running turn should heed: `/steer use the other branch`.")
    seat, joins = errand.seat, errand.seat.busy
    if joins or not await seat.store.read(lambda tx: tx.turns.find(seat.session_id, running=True, limit=1)):
        await seat.put(Text(errand.words), steering=True)
    else:
        message = Message(role="user", parts=(Text(errand.words),), at=datetime.now(UTC))
        joins = await say_there(seat.store, seat.session_id, message, source=seat.wish.source, steering=True)
    if joins:
        errand.place.show("It joins the running turn before its next step.")


COMMAND = Command(
    name="steer",
    category="Turn",
    help="Say something to the running turn, without stopping it.",
    hint="<text>",
    run=run,
)
