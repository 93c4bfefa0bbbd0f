"""`/retry`: say the last message again."""

from talaria.commands.command import Command, Errand
from talaria.commands.parting import take_back


async def run(errand: Errand) -> None:
    """Take the last exchange back and say the same once more, with its pictures."""
    parted = await take_back(errand, 1)
    await errand.seat.put(*parted.removed[0].message.parts)
    errand.place.show(f"Asked again. `/resume {parted.kept_in}` has the answer from before.")


COMMAND = Command(
    name="retry",
    category="Session",
    help="Ask for another answer to the last message.",
    during_turn="refused",
    run=run,
)
