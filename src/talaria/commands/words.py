"""The words behind a command: one by one as a shell would split them, and put into a text."""

import re
import shlex

_PLACE = re.compile(r"(\\?)\$(ARGUMENTS\b|[1-9](?!\d))")


def split_words(text: str) -> list[str]:
    """Return the words, those in quotes as one; quotes that do not close are part of a word."""
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def fill_in(text: str, words: str) -> str:
    r"""Return ``text`` with ``words`` in the place of ``$ARGUMENTS`` and single ones in that of ``$1`` to ``$9``.

    Where there is no such place they stand at the end. What is written ``\$1`` stays ``$1``.
    """
    single = split_words(words)
    taken = False

    def instead(found: re.Match[str]) -> str:
        nonlocal taken
        escaped, name = found.groups()
        if escaped:
            return found[0][1:]
        taken = True
        if name == "ARGUMENTS":
            return words
        return single[int(name) - 1] if int(name) <= len(single) else ""

    filled = _PLACE.sub(instead, text)
    return filled if taken or not words else f"{filled}\n\n{words}"
