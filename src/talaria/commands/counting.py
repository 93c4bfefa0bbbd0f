"""Numbers behind the name of a command."""

from talaria.commands.command import Errand
from talaria.core.errors import Refused


def counted_words(errand: Errand, *, usual: int, most: int) -> int:
    """Return the number that was typed, or the usual one; raises `Refused` for what is none."""
    if not errand.words:
        return usual
    if not (errand.words.isascii() and errand.words.isdigit()) or int(errand.words) == 0:
        raise Refused(f"`{errand.words}` is not a number of 1 or more.")
    return min(int(errand.words[:9]), most)
