"""`talaria chat`: talk to the agent, once or line by line."""

import argparse
import sys
from importlib import import_module
from pathlib import Path

from talaria.cli.arguments import completing
from talaria.cli.services import Services


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


def run(arguments: argparse.Namespace, services: Services) -> int:
    """Talk, and return what became of it."""
    talking = import_module("talaria.cli.talking")  # brings asyncio and the agent: not before it is needed
    code: int = talking.talk(arguments, services, sys.stdin)
    return code
