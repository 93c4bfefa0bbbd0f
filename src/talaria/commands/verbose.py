"""`/verbose`: how much of the agent's work is shown here."""

from collections.abc import Sequence
from typing import cast

from msgspec import structs

from talaria.commands.command import Command, Errand, Progress
from talaria.core.errors import NotFound

LEVELS = {
    "off": "no tool calls",
    "new": "a tool call where it is another tool than before",
    "all": "every tool call",
    "verbose": "every tool call, with what it is given and what it answers",
}


async def run(errand: Errand) -> None:
    """Show this much from now on; without words, the next step of off, new, all, verbose."""
    names = list(LEVELS)
    level = errand.words.lower() or names[(names.index(errand.place.display.progress) + 1) % len(names)]
    if level not in LEVELS:
        raise NotFound(f"`{level}` is none of {', '.join(LEVELS)}.")
    errand.place.change_display(structs.replace(errand.place.display, progress=cast("Progress", level)))
    errand.place.show(f"Shown here from now on: {LEVELS[level]} (`{level}`).")


async def offers(errand: Errand) -> Sequence[tuple[str, str]]:
    """Return the levels."""
    return list(LEVELS.items())


COMMAND = Command(
    name="verbose",
    category="Display",
    help="Choose how much of the agent's work is shown here; without words the next level.",
    hint="[off|new|all|verbose]",
    who="owner",
    run=run,
    offers=offers,
)
