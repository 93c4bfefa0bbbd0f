"""`/keys`: the keyboard shortcuts of the terminal."""

from talaria.commands.command import Command, Errand
from talaria.commands.screens import screen_of


async def run(errand: Errand) -> None:
    """Show the keyboard shortcuts."""
    errand.place.show(screen_of(errand).keys)


COMMAND = Command(name="keys", category="Program", help="Show the keyboard shortcuts.", where="terminal", run=run)
