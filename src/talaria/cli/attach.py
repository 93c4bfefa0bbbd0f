"""`talaria attach`: watch a conversation that goes on elsewhere, speak in it, take it over."""

import argparse
import sys
from importlib import import_module

from talaria.cli.arguments import completing
from talaria.cli.services import Services


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    parser.epilog = "While attached: a line is said there; /stop, /steer TEXT, /take, /detach. Ctrl-D leaves."
    session = parser.add_argument("session", metavar="SESSION", help="its id, its title or a part of it")
    completing(session, "sessions")
    parser.add_argument("--json", action="store_true", help="print events, one JSON object per line")
    parser.add_argument(
        "--plain", action="store_true", help="plain lines of text, for screen readers and dumb terminals"
    )


def run(arguments: argparse.Namespace, services: Services) -> int:
    """Watch until the person leaves; where they took the conversation over, go on with it."""
    # Each brings asyncio along, or an editor: not before it is needed.
    if arguments.json:
        code: int = import_module("talaria.cli.attached_lines").print_events(arguments, services)
        return code
    plain = _is_plain(arguments, services)
    if plain:
        taken: str = import_module("talaria.cli.attached_lines").watch_plainly(arguments, services)
    else:
        taken = import_module("talaria.cli.live.attached").watch_live(arguments, services)
    if not taken:
        return 0
    chat = argparse.Namespace(resume=taken, latest=False, model="", image=[], json=False, plain=plain)
    module, opening = ("talaria.cli.plain", "open_plain") if plain else ("talaria.cli.live.opening", "open_live")
    went_on: int = getattr(import_module(module), opening)(chat, services)
    return went_on


def _is_plain(arguments: argparse.Namespace, services: Services) -> bool:
    dumb = services.environment.get("TERM", "dumb") in {"", "dumb"}
    piped = not (sys.stdin.isatty() and sys.stdout.isatty())
    return arguments.plain or dumb or piped or services.settings().cli.plain
