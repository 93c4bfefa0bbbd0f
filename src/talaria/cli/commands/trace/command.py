"""`talaria trace`: show the timeline, tokens and cost of a session's turns."""

import argparse

from talaria.cli.parser import add_completion
from talaria.cli.services import Services

_MAX_COUNT = 1_000_000
_EPILOG = """\
A prefix break is a request that starts differently from the one before, so the
provider couldn't use its prompt cache. --breaks lists them.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments."""
    parser.epilog = _EPILOG
    session = parser.add_argument("session", metavar="SESSION", help="id, or part of its title or first message")
    add_completion(session, "sessions")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--turn", metavar="TURN", help="only this turn: its number or id")
    which.add_argument("--last", metavar="N", type=_parse_count, default=20, help="the last N turns (default: 20)")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--breaks", action="store_true", help="list the prefix breaks and their cost")
    page = how.add_argument("--html", metavar="FILE", help="write the timeline as a web page; - prints it")
    picture = how.add_argument("--svg", metavar="FILE", help="write the timeline as an image; - prints it")
    add_completion(page, "files")
    add_completion(picture, "files")
    parser.add_argument("--force", action="store_true", help="overwrite an existing file")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace, services: Services) -> int:
    """Show the trace and return the exit code."""
    from talaria.cli.commands.trace.show import show_trace  # noqa: PLC0415 (loaded when it runs: completion needs only arguments)

    show_trace(arguments, services)
    return 0


def _parse_count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(_MAX_COUNT)) and 1 <= int(text) <= _MAX_COUNT):
        raise argparse.ArgumentTypeError(f"`{text}` isn't a number from 1 to {_MAX_COUNT}")
    return int(text)
