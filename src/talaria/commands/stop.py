"""`/stop`: end the running turn, and what a command of one's own runs."""

from talaria.commands.command import Command, Errand


async def run(errand: Errand) -> None:
    """Stop the turn; what was said and done so far is kept."""
    chat = errand.seat.chat
    lines_stopped = errand.house.shell.stop(chat.workspace)
    if not chat.conversation.stop() and not lines_stopped:
        errand.place.show("Nothing is running.")


COMMAND = Command(name="stop", category="Turn", help="Stop the running turn; what was done so far is kept.", run=run)
