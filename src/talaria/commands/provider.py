"""`/provider`: the providers of models that can be used, and the good model of one of them."""

from collections import Counter
from collections.abc import Sequence

from talaria.commands import model
from talaria.commands.command import Command, Errand
from talaria.core.wording import counted


async def run(errand: Errand) -> None:
    """List the providers, or go to one of them."""
    if errand.words:
        await model.choose(errand, errand.words.removesuffix(":"))
        return
    listing = await errand.house.models.listing()
    here = errand.seat.chat.provider
    counts = Counter(one.provider for one in listing.models)
    lines = [
        f"- `{name}`: {counted(count, 'model')}{', answers here' if name == here else ''}"
        for name, count in counts.items()
    ]
    remarks = [f"- {trouble}" for trouble in listing.troubles]
    end = "`/provider NAME` lets a good model of that one answer here."
    errand.place.show("\n".join([*lines, *remarks, "", end]).strip())


async def offers(errand: Errand) -> Sequence[tuple[str, str]]:
    """Return every provider that can be used."""
    listing = await errand.house.models.recent_listing()
    counts = Counter(one.provider for one in listing.models)
    return [(name, counted(count, "model")) for name, count in counts.items()]


COMMAND = Command(
    name="provider",
    category="Model",
    help="Show the providers of models, or let a good model of one answer here.",
    hint="[name]",
    during_turn="refused",
    who="owner",
    run=run,
    offers=offers,
)
