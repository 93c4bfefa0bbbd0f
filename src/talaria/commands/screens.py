"""What only the terminal has, for commands that work nowhere else."""

from talaria.commands.command import Errand, Screen
from talaria.core.errors import Refused


def screen_of(errand: Errand) -> Screen:
    """Return the screen, or raise `Refused` where there is none."""
    if errand.screen is None:
        raise Refused("That works in the terminal only.")
    return errand.screen
