"""`/reasoning`: how much the model thinks before it answers here, and whether that is shown."""

from collections.abc import Sequence

from msgspec import structs

from talaria.commands.choosing import prefer, preferences
from talaria.commands.command import Command, Errand
from talaria.core.errors import NotFound

EFFORTS = {
    "none": "does not think before it answers",
    "minimal": "thinks as little as it can",
    "low": "thinks a little",
    "medium": "thinks as much as is usual",
    "high": "thinks much, which takes time and tokens",
    "default": "thinks as the settings say",
}
SHOWING = {"show": "show what the model thinks", "hide": "do not show it"}


async def run(errand: Errand) -> None:
    """Say how it is, choose an effort for this conversation, or show and hide the thoughts."""
    word = errand.words.lower()
    if not word:
        await _say_how_it_is(errand)
    elif word in SHOWING:
        errand.place.change_display(structs.replace(errand.place.display, reasoning=word == "show"))
        errand.place.show(f"What the model thinks is {'shown' if word == 'show' else 'hidden'} here from now on.")
    elif word in EFFORTS:
        await prefer(errand, effort="" if word == "default" else word)
        errand.place.show(f"From now on the model {EFFORTS[word]} in this conversation.{_useless(errand)}")
    else:
        raise NotFound(f"`{word}` is no effort: choose one of {', '.join([*EFFORTS, *SHOWING])}.")


async def _say_how_it_is(errand: Errand) -> None:
    effort = (await preferences(errand)).effort
    usual = next((one.value for one in errand.house.settings_rack.list() if one.key == "model.effort"), "")
    chosen = (
        f"`{effort}`, chosen for this conversation" if effort else f"`{usual or 'its own way'}`, as the settings say"
    )
    shown = "shown" if errand.place.display.reasoning else "hidden"
    errand.place.show(f"How much the model thinks: {chosen}. What it thinks is {shown}.{_useless(errand)}")


def _useless(errand: Errand) -> str:
    chat = errand.seat.chat
    return "" if chat.info.reasoning or not chat.info.known else f" But `{chat.model}` is not one that thinks."


async def offers(errand: Errand) -> Sequence[tuple[str, str]]:
    """Return the efforts, and what shows and hides."""
    return [*EFFORTS.items(), *SHOWING.items()]


COMMAND = Command(
    name="reasoning",
    category="Model",
    help="Choose how much the model thinks in this conversation, or whether that is shown.",
    hint="[none|minimal|low|medium|high|default|show|hide]",
    who="owner",
    run=run,
    offers=offers,
)
