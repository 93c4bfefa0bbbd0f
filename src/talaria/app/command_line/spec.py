"""The whole command line as data, for help, completion and the reference."""

from talaria.app.command_line.dispatch import build_parser
from talaria.app.command_line.subcommands import SUBCOMMANDS
from talaria.cli.parser import Parser
from talaria.cli.parser_tree import Argument, CommandSpec, read_parser


def read_command_line() -> CommandSpec:
    """Return the spec of `talaria` with every subcommand, in overview order; imports all their modules."""
    root = read_parser(("talaria",), "A personal AI agent", Parser(prog="talaria"))
    version = Argument(flags=("-V", "--version"), help="show the version")
    subcommands = [read_parser(("talaria", entry.name), entry.summary, build_parser(entry)) for entry in SUBCOMMANDS]
    return CommandSpec(
        path=root.path,
        summary=root.summary,
        options=(*root.options, version),
        actions=(*subcommands, _make_help_command(root)),
    )


def _make_help_command(root: CommandSpec) -> CommandSpec:
    topic = Argument(name="COMMAND", choices=tuple(entry.name for entry in SUBCOMMANDS), help="the command to explain")
    return CommandSpec(
        path=("talaria", "help"), summary="Explain a command", options=root.options, positionals=(topic,)
    )
