"""`/undo`: take back what was said last."""

from talaria.commands.command import Command, Errand
from talaria.commands.counting import counted_words
from talaria.commands.markdown import plain, shortened
from talaria.commands.parting import take_back
from talaria.core.messages import Image, Text
from talaria.core.wording import counted
from talaria.goals.keeping import KIND

_LONGEST_QUOTE = 80
_MOST = 1_000


async def run(errand: Errand) -> None:
    """Go on as if the last exchanges had not been; they stay in a conversation of their own."""
    count = counted_words(errand, usual=1, most=_MOST)
    parted = await take_back(errand, count)
    first = parted.removed[0].message
    words = "\n".join(part.text for part in first.parts if isinstance(part, Text))
    if errand.screen is not None and first.author != KIND:
        errand.screen.fill_in(words)
        for picture in first.parts:
            if isinstance(picture, Image):
                errand.screen.attach(picture)
    what = counted(count, "exchange") if count > 1 else f"“{plain(shortened(words, _LONGEST_QUOTE))}”"
    errand.place.show(f"Taken back: {what}. `/resume {parted.kept_in}` shows it as it was. Files stay as they are.")


COMMAND = Command(
    name="undo",
    category="Session",
    help="Take back the last exchange, or several.",
    hint="[how many]",
    during_turn="refused",
    run=run,
)
