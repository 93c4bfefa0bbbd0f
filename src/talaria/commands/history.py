"""`/history`: what was said last."""

from talaria.commands.command import Command, Errand
from talaria.commands.counting import counted_words
from talaria.commands.markdown import plain, readable
from talaria.contracts.clock import SystemClock
from talaria.contracts.stores.messages import StoredMessage
from talaria.core.wording import ago

_USUAL = 10
_MOST = 100
_LONGEST = 1_500


async def run(errand: Errand) -> None:
    """Show the last messages; tools take a line each."""
    count = counted_words(errand, usual=_USUAL, most=_MOST)
    session_id = errand.seat.session_id
    messages = await errand.seat.store.read(lambda tx: tx.messages.last(session_id, count))
    if not messages:
        errand.place.show("Nothing has been said here yet.")
        return
    earlier = messages[0].seq - 1
    opening = [f"*{earlier} earlier; `/save` writes all of them to a file.*"] if earlier else []
    errand.place.show("\n\n".join([*opening, *map(_block, messages)]))


def _block(stored: StoredMessage) -> str:
    message = stored.message
    body = readable(message, _LONGEST) or "*(no words)*"
    if message.role == "tool":
        return body
    who = plain(message.author) or ("You" if message.role == "user" else "Agent")
    return f"**{who}** · {ago(message.at, SystemClock().now())}\n\n{body}"


COMMAND = Command(
    name="history", category="Session", help="Show what was said last.", hint="[how many]", run=run, reads=True
)
