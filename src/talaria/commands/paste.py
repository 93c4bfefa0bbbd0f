"""`/paste`: what the clipboard holds, into the next message."""

from talaria.commands.command import Command, Errand
from talaria.commands.screens import screen_of
from talaria.core.messages import Image


async def run(errand: Errand) -> None:
    """Put text into the input line, or attach a picture."""
    screen = screen_of(errand)
    match await screen.paste():
        case Image() as picture:
            screen.attach(picture)
            errand.place.show("The picture goes along with the next message.")
        case str(text) if text:
            screen.fill_in(text)
        case _:
            errand.place.show("The clipboard is empty, or out of reach from here.")


COMMAND = Command(
    name="paste",
    category="Turn",
    help="Put what the clipboard holds into the next message: text, or a picture.",
    where="terminal",
    run=run,
)
