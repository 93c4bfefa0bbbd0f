"""`/memory`: what the agent remembers, and what it is to forget."""

from collections.abc import Sequence

from talaria.commands.command import Command, Errand
from talaria.commands.conversations import reach_of
from talaria.core.errors import Refused

FORGET = "forget"


async def run(errand: Errand) -> None:
    """Show what is remembered for this place, or take an entry out of it."""
    action, _, part = errand.words.partition(" ")
    viewer = (await errand.seat.store.read(lambda tx: reach_of(tx, errand))).viewer
    if viewer is None:
        raise Refused("What is remembered here is not yours.")
    if not action:
        errand.place.show(errand.house.knowledge.memory(viewer) or "Nothing is remembered yet.")
    elif action == FORGET and part.strip():
        entry = errand.house.knowledge.forget(part.strip(), viewer)
        errand.place.show(
            f"Forgotten: {entry}\n\nConversations that begin from now on do not know it; those that know it already do."
        )
    else:
        raise Refused("Type `/memory`, or `/memory forget` and a part of what is to be forgotten.")


async def offers(errand: Errand) -> Sequence[tuple[str, str]]:
    """Return what can be done beside showing it."""
    return [(f"{FORGET} ", "take an entry out")]


COMMAND = Command(
    name="memory",
    category="Abilities",
    help="Show what the agent remembers, or let it forget an entry.",
    hint="[forget text]",
    who="owner",
    run=run,
    offers=offers,
)
