"""`/personality`: in which manner the agent answers in this conversation."""

from collections.abc import Sequence

from talaria.commands.choosing import prefer, preferences
from talaria.commands.command import Command, Errand
from talaria.core.errors import NotFound

NONE = "none"


async def run(errand: Errand) -> None:
    """List the personalities, or choose one."""
    known = errand.house.knowledge.personalities()
    if not errand.words:
        now = (await preferences(errand)).personality
        lines = [f"- `{name}`{' (chosen here)' if name == now else ''}: {line}" for name, line in known.items()]
        end = "`/personality NAME` chooses one for this conversation, `/personality none` takes it away."
        errand.place.show("\n".join([*lines, "", end]))
        return
    if errand.words not in (*known, NONE):
        raise NotFound(f"There is no personality `{errand.words}`; there are {', '.join(known)}.")
    chosen = "" if errand.words == NONE else errand.words
    await prefer(errand, personality=chosen)
    now = f"as `{chosen}`" if chosen else "in its own manner"
    errand.place.show(f"From the next message on the agent answers {now} in this conversation.")


async def offers(errand: Errand) -> Sequence[tuple[str, str]]:
    """Return every personality."""
    return [*errand.house.knowledge.personalities().items(), (NONE, "in its own manner")]


COMMAND = Command(
    name="personality",
    category="Model",
    help="Show the personalities there are, or choose one for this conversation.",
    hint="[name|none]",
    during_turn="refused",
    who="owner",
    run=run,
    offers=offers,
)
