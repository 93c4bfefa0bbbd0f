"""`/footer`: a line below each reply."""

from collections.abc import Sequence

from msgspec import structs

from talaria.commands.command import Command, Errand
from talaria.core.errors import NotFound

STATES = {"on": "with model, context, folder and cost", "off": "replies only"}


async def run(errand: Errand) -> None:
    """Show the line or not; without words, the other way than now."""
    state = errand.words.lower() or ("off" if errand.place.display.footer else "on")
    if state not in STATES:
        raise NotFound(f"`{state}` is neither on nor off.")
    errand.place.change_display(structs.replace(errand.place.display, footer=state == "on"))
    errand.place.show(f"The line below replies is {state} here.")


async def offers(errand: Errand) -> Sequence[tuple[str, str]]:
    """Return on and off."""
    return list(STATES.items())


COMMAND = Command(
    name="footer",
    category="Display",
    help="Show a line below each reply, with model, context, folder and cost.",
    hint="[on|off]",
    who="owner",
    run=run,
    offers=offers,
)
