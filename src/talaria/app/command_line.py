"""The whole command line as data, read from the parsers of all subcommands."""

from talaria.app.parsers import build_parser
from talaria.app.subcommands import SUBCOMMANDS
from talaria.cli.arguments import Parser
from talaria.cli.command_tree import Argument, Command, read_parser


def read_command_line() -> Command:
    """Return `talaria` with every subcommand, in the order of the overview; this loads all their modules."""
    root = read_parser(("talaria",), "A personal AI agent", Parser(prog="talaria"))
    version = Argument(flags=("-V", "--version"), help="show the version")
    subcommands = [read_parser(("talaria", entry.name), entry.summary, build_parser(entry)) for entry in SUBCOMMANDS]
    return Command(
        path=root.path,
        summary=root.summary,
        options=(*root.options, version),
        actions=(*subcommands, _help_command(root)),
    )


def _help_command(root: Command) -> Command:
    topic = Argument(name="COMMAND", choices=tuple(entry.name for entry in SUBCOMMANDS), help="what to explain")
    return Command(path=("talaria", "help"), summary="Explain a command", options=root.options, positionals=(topic,))
