"""`/stop`: end the running turn, and what a command of one's own runs."""

from talaria.commands.command import Command, Errand
from talaria.sessions.live_words import Stop, speak_to


async def run(errand: Errand) -> None:
    """Stop the turn, whichever process runs it; what was said and done so far is kept."""
    chat = errand.seat.chat
    lines_stopped = errand.house.shell.stop(chat.workspace)
    elsewhere = chat.conversation.turn is None and await speak_to(errand.seat.store, errand.seat.session_id, Stop())
    if not chat.conversation.stop() and not lines_stopped and not elsewhere:
        errand.place.show("Nothing is running.")


COMMAND = Command(name="stop", category="Turn", help="Stop the running turn; what was done so far is kept.", run=run)
