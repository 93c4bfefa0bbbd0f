"""`/whoami`: who the agent takes somebody for, and where."""

from talaria.commands.command import Command, Errand
from talaria.commands.markdown import plain


async def run(errand: Errand) -> None:
    """Say who, where, and in which conversation."""
    author, place, seat = errand.author, errand.place, errand.seat
    lines = [
        f"- You are {plain(author.name) or 'somebody without a name'}, {_standing(owner=author.owner)}.",
        f"- This place is `{place.name}`{_where(errand)}.",
        f"- The conversation is `{seat.session_id}`" + (f", bound to `{seat.key}`." if seat.key else "."),
    ]
    errand.place.show("\n".join(lines))


def _standing(*, owner: bool) -> str:
    return "the owner of this agent" if owner else "not the owner of this agent"


def _where(errand: Errand) -> str:
    address = errand.place.address
    if address is None:
        return ""
    thread = f", thread `{address.thread_id}`" if address.thread_id else ""
    return f", {address.chat_type} chat `{address.chat_id}`{thread}"


COMMAND = Command(
    name="whoami", category="Program", help="Show who the agent takes you for, and where you are.", run=run, reads=True
)
