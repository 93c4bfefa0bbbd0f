"""`/stop`: end the running turn, and what a command of one's own runs."""

from talaria.commands.command import Command, Errand
from talaria.sessions.live_words import Stop, speak_to


async def run(errand: Errand) -> None:
    """Stop the turn, whichever process runs it; what was said and done so far is kept."""
    chat = errand.seat.chat
    lines_stopped, ours = errand.house.shell.stop(chat.workspace), chat.conversation.turn is not None
    stopped = chat.conversation.stop()
    if lines_stopped or (ours and stopped):
        return
    if not await speak_to(errand.seat.store, errand.seat.session_id, Stop()) and not stopped:
        errand.place.show("Nothing is running.")


COMMAND = Command(name="stop", category="Turn", help="Stop the running turn; what was done so far is kept.", run=run)
