"""`/steer`: add text to the running turn."""

from datetime import UTC, datetime

from talaria.commands.command import Command, Errand
from talaria.core.errors import Refused
from talaria.core.messages import Message, Text
from talaria.sessions.lane import running_sender
from talaria.sessions.live_speaking import say_there


async def run(errand: Errand) -> None:
    """Add the text to the running turn, in this process or another, or queue it as a message of its own.

    It is queued where no turn is running, or where another person began the running turn.
    """
    if not errand.words:
        raise Refused("Add the text for the running turn: `/steer use the other branch`.")
    seat, sender = errand.seat, errand.sender
    running = await seat.store.read(lambda tx: running_sender(tx, seat.session_id))
    if seat.busy or running is None:
        await seat.put(Text(errand.words), sender=sender, steering=True)
    else:
        message = Message(role="user", parts=(Text(errand.words),), at=datetime.now(UTC))
        await say_there(seat.store, seat.session_id, message, source=seat.wish.source, sender=sender, steering=True)
    if running is not None and seat.chat.is_same_person(running, sender):
        errand.place.show("It joins the running turn before its next step.")
    elif running is not None:
        errand.place.show("Someone else's turn is running. Your message gets its own turn right after.")


COMMAND = Command(
    name="steer",
    category="Turn",
    help="Say something to the running turn, without stopping it.",
    hint="<text>",
    run=run,
)
