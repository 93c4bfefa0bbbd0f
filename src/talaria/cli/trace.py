"""`talaria trace`: what the turns of a session did, when, and what that took."""

import argparse
from importlib import import_module

from talaria.cli.arguments import completing
from talaria.cli.services import Services

_MOST = 1_000_000
_EPILOG = """\
A prefix break is a request that did not begin as the one before, so that the
provider's prompt cache could not be used: --breaks lists them.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe what can be asked."""
    parser.epilog = _EPILOG
    session = parser.add_argument("session", metavar="SESSION", help="its id, or a part of its title or first message")
    completing(session, "sessions")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--turn", metavar="TURN", help="only this one: its number, or its id")
    which.add_argument("--last", metavar="N", type=_count, default=20, help="the last N turns (default: 20)")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--breaks", action="store_true", help="list the prefix breaks and their price")
    page = how.add_argument("--html", metavar="FILE", help="draw the timeline on a web page; - prints it")
    picture = how.add_argument("--svg", metavar="FILE", help="draw the timeline as a picture; - prints it")
    completing(page, "files")
    completing(picture, "files")
    parser.add_argument("--force", action="store_true", help="overwrite an existing file")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace, services: Services) -> int:
    """Show the trace and return the exit code."""
    import_module("talaria.cli.traces.showing").show_trace(arguments, services)
    return 0


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(_MOST)) and 1 <= int(text) <= _MOST):
        raise argparse.ArgumentTypeError(f"`{text}` is not a number from 1 to {_MOST}")
    return int(text)
