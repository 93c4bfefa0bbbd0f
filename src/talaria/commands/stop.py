"""`/stop`: end the running turn."""

from talaria.commands.command import Command, Errand


async def run(errand: Errand) -> None:
    """Stop the turn; what was said and done so far is kept."""
    if not errand.seat.chat.conversation.stop():
        errand.place.show("Nothing is running.")


COMMAND = Command(name="stop", category="Turn", help="Stop the running turn; what was done so far is kept.", run=run)
