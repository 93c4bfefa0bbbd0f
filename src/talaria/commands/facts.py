"""What hooks are told of a command, and of the place where it is used."""

from talaria.commands.command import Errand
from talaria.contracts.hooks import Fact, session_facts
from talaria.core.session_context import SessionContext
from talaria.sessions.context import place_context


def errand_facts(errand: Errand, **more: Fact) -> dict[str, Fact]:
    """Return where an errand takes place, in which conversation, and who sent it, with ``more`` facts."""
    seat, author = errand.seat, errand.author
    known = SessionContext(
        source=seat.wish.source,
        user_id=author.id,
        user_name=author.name,
        session_id=seat.session_id if seat.is_open else "",
    )
    return {**session_facts(place_context(known, seat.key, errand.place.address)), **more}
