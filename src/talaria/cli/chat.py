"""`talaria chat`: talk to the agent, once or line by line."""

import argparse
import sys
from importlib import import_module
from pathlib import Path

from talaria.cli.arguments import completing
from talaria.cli.services import Services
from talaria.core.errors import Refused


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    parser.add_argument("-q", "--query", metavar="TEXT", help="ask this, print the answer and end")
    completing(
        parser.add_argument("-r", "--resume", metavar="SESSION", default="", help="go on with this conversation"),
        "sessions",
    )
    parser.add_argument(
        "-c", "--continue", dest="latest", action="store_true", help="go on with the last one of the terminal"
    )
    parser.add_argument("-m", "--model", metavar="MODEL", default="", help="use this model: MODEL or PROVIDER:MODEL")
    completing(
        parser.add_argument(
            "-i", "--image", metavar="FILE", type=Path, action="append", default=[], help="show this picture as well"
        ),
        "files",
    )
    parser.add_argument("--json", action="store_true", help="print what happens, one JSON object a line")
    parser.add_argument(
        "--plain", action="store_true", help="plain lines of text, for screen readers and dumb terminals"
    )


def run(arguments: argparse.Namespace, services: Services) -> int:
    """Talk, and return what became of it."""
    piped = "" if sys.stdin.isatty() else sys.stdin.read()
    question = "\n\n".join(part for part in (arguments.query or "", piped.strip()) if part)
    if question:
        # Each brings asyncio and the agent along, or an editor: not before it is needed.
        code: int = import_module("talaria.cli.talking").ask_once(arguments, services, question)
    elif not sys.stdin.isatty():
        raise Refused("There is nothing to answer: give a question with -q, or on the standard input.")
    elif _is_plain(arguments, services):
        code = import_module("talaria.cli.plain").open_plain(arguments, services)
    else:
        code = import_module("talaria.cli.live.opening").open_live(arguments, services)
    return code


def _is_plain(arguments: argparse.Namespace, services: Services) -> bool:
    """Tell whether the chat is to be lines of text: asked for, or nothing else is possible."""
    if arguments.json:
        raise Refused("`--json` needs a question: give it with -q, or on the standard input.")
    dumb = services.environment.get("TERM", "dumb") in {"", "dumb"}
    return arguments.plain or dumb or not sys.stdout.isatty() or services.settings().cli.plain
