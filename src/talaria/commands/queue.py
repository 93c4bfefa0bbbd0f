"""`/queue`: say something behind the running turn, and see what waits."""

from talaria.commands.command import Command, Errand
from talaria.commands.markdown import plain, shortened
from talaria.core.messages import Message, Text
from talaria.sessions.waiting import waiting

_LENGTH = 100


async def run(errand: Errand) -> None:
    """Put the words behind what waits already, or list that."""
    seat = errand.seat
    was_busy = seat.busy
    if errand.words:
        await seat.put(Text(errand.words), sender=errand.sender)
        if not was_busy:
            return
    session_id = seat.session_id
    found = await seat.store.read(lambda tx: waiting(tx, session_id))
    lines = [f"{number}. {_line(message)}" for number, message in enumerate(found, 1)]
    errand.place.show("Waiting behind the running turn:\n\n" + "\n".join(lines) if lines else "Nothing waits.")


def _line(message: Message) -> str:
    return plain(shortened(" ".join(message.text.split()), _LENGTH)) or "(a picture)"


COMMAND = Command(
    name="queue",
    category="Turn",
    help="Say something that is answered behind the running turn, or show what waits.",
    hint="[text]",
    run=run,
)
