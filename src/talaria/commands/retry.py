"""`/retry`: say the last message again."""

from talaria.commands.command import Command, Errand
from talaria.commands.parting import take_back
from talaria.core.senders import OWNER, UNKNOWN


async def run(errand: Errand) -> None:
    """Take the last exchange back and ask again with the same text and pictures.

    In a chat the text may be another person's, so the new turn has nobody's rights there.
    """
    parted = await take_back(errand, 1)
    sender = OWNER if errand.place.address is None else UNKNOWN
    await errand.seat.put(*parted.removed[0].message.parts, sender=sender)
    errand.place.show(f"Asked again. `/resume {parted.kept_in}` has the answer from before.")


COMMAND = Command(
    name="retry",
    category="Session",
    help="Ask for another answer to the last message.",
    during_turn="refused",
    run=run,
)
