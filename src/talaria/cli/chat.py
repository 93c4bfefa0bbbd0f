"""`talaria chat`: chat with the agent, or ask one question."""

import argparse
import sys
from importlib import import_module
from pathlib import Path

from talaria.cli.arguments import completing
from talaria.cli.services import Services
from talaria.core.errors import Refused

_MEGABYTE = 1_000_000
_MOST_BYTES = 32 * _MEGABYTE  # more than the context of any model
_MORE = """\
  talaria "What is new?"
  talaria chat -c And in short?
  git diff | talaria -q "Review this"
  talaria "Explain @notes.md"
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    parser.epilog = _MORE
    parser.add_argument("question", metavar="QUESTION", nargs="*", help="the same as -q, without quotes if you like")
    parser.add_argument("-q", "--query", metavar="TEXT", help="ask this, print the answer and end")
    completing(
        parser.add_argument("-r", "--resume", metavar="SESSION", default="", help="continue this conversation"),
        "sessions",
    )
    parser.add_argument(
        "-c", "--continue", dest="latest", action="store_true", help="continue the last conversation of the terminal"
    )
    parser.add_argument("-m", "--model", metavar="MODEL", default="", help="use this model: MODEL or PROVIDER:MODEL")
    completing(
        parser.add_argument(
            "-i", "--image", metavar="FILE", type=Path, action="append", default=[], help="send this image along"
        ),
        "files",
    )
    parser.add_argument("--json", action="store_true", help="print events, one JSON object per line")
    parser.add_argument(
        "--plain", action="store_true", help="plain lines of text, for screen readers and dumb terminals"
    )


def run(arguments: argparse.Namespace, services: Services) -> int:
    """Talk, and return what became of it."""
    typed = _typed(arguments)
    piped = "" if sys.stdin.isatty() else _read_input()
    if typed or piped:
        # Each brings asyncio and the agent along, or an editor: not before it is needed.
        code: int = import_module("talaria.cli.talking").ask_once(arguments, services, typed, piped)
    elif not sys.stdin.isatty():
        raise Refused('There is no question. Give one, as in `talaria "What is new?"`, or pipe it in.')
    elif _is_plain(arguments, services):
        code = import_module("talaria.cli.plain").open_plain(arguments, services)
    else:
        code = import_module("talaria.cli.live.opening").open_live(arguments, services)
    return code


def _typed(arguments: argparse.Namespace) -> str:
    """Return the question of the command line; bytes that are no UTF-8 are replaced."""
    typed = "\n\n".join(part for part in (arguments.query or "", " ".join(arguments.question)) if part)
    return typed.encode(errors="surrogateescape").decode(errors="replace")


def _read_input() -> str:
    """Return what was piped in; bytes that are no UTF-8 are replaced."""
    raw = sys.stdin.buffer.read(_MOST_BYTES + 1)
    if len(raw) > _MOST_BYTES:
        raise Refused(
            f"The input has more than {_MOST_BYTES // _MEGABYTE} MB. Save it to a file and give the path instead:"
            " the agent reads the parts it needs."
        )
    return raw.decode(errors="replace").strip()


def _is_plain(arguments: argparse.Namespace, services: Services) -> bool:
    """Tell whether the chat is to be lines of text: asked for, or nothing else is possible."""
    if arguments.json:
        raise Refused("`--json` needs a question: give it as an argument, with -q, or pipe it in.")
    dumb = services.environment.get("TERM", "dumb") in {"", "dumb"}
    return arguments.plain or dumb or not sys.stdout.isatty() or services.settings().cli.plain
