"""The parser of a subcommand, made by loading its module."""

from talaria.app.subcommands import Subcommand, load
from talaria.cli.arguments import Parser


def build_parser(subcommand: Subcommand) -> Parser:
    """Return the parser of one subcommand, with its own arguments and those of every command."""
    parser = Parser(prog=f"talaria {subcommand.name}", description=f"{subcommand.summary}.")
    load(subcommand.module).add_arguments(parser)
    return parser
