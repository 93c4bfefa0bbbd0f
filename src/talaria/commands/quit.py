"""`/quit`: end the program."""

from talaria.commands.command import Command, Errand
from talaria.commands.screens import screen_of


async def run(errand: Errand) -> None:
    """Leave; the conversation can be resumed."""
    screen_of(errand).leave()


COMMAND = Command(
    name="quit",
    category="Program",
    help="End the program; the conversation can be resumed.",
    aliases=("exit", "q"),
    where="terminal",
    run=run,
)
