"""Dispatch of the command line: find the subcommand, parse its arguments, run it."""

import sys
from argparse import SUPPRESS
from typing import Any

from talaria.app.command_line.services import ProcessServices
from talaria.app.command_line.subcommands import (
    SUBCOMMANDS,
    Subcommand,
    find_subcommand,
    format_overview,
    format_version,
)
from talaria.cli.parser import USAGE_ERROR, Parser
from talaria.core.files import restrict_umask
from talaria.core.lazy import load_module

DEFAULT = "chat"
_OPTIONS_WITH_VALUE = {"-p", "--profile", "--color"}
_SIMILAR, _VERY_SIMILAR = 0.75, 0.8  # `what` resembles `chat` (0.75), but starts a question
_CHAT_OPTIONS = {"-q", "--query", "-r", "--resume", "-m", "--model", "-i", "--image"}  # each takes a value


def load_subcommand(subcommand: Subcommand) -> Any:
    """Return the module or class of a subcommand, with its functions ``add_arguments`` and ``run``."""
    module, _, name = subcommand.module.partition(":")
    return getattr(load_module(module), name) if name else load_module(module)


def build_parser(subcommand: Subcommand) -> Parser:
    """Return the parser of one subcommand, with its own arguments and the common ones."""
    parser = Parser(prog=f"talaria {subcommand.name}", description=f"{subcommand.summary}.")
    load_subcommand(subcommand).add_arguments(parser)
    if subcommand.name == DEFAULT:  # so that `talaria --verson` gets a suggestion
        parser.add_argument("--version", action="version", version=format_version(), help=SUPPRESS)
    return parser


def run(argv: list[str]) -> int:
    """Run the command line and return the exit code; files created meanwhile are private."""
    restrict_umask()
    before, rest = _split_options(argv)
    if rest[:1] == ["help"]:
        before, rest = (before, [*rest[1:], "--help"]) if rest[1:] else (["--help"], [])
    try:
        return _run_subcommand(before, rest) if rest else _run_without_subcommand(before)
    except SystemExit as left:  # argparse exits this way, after printing its message
        return left.code if isinstance(left.code, int) else USAGE_ERROR


def _split_options(argv: list[str]) -> tuple[list[str], list[str]]:
    """Split the options before the subcommand from the subcommand and its arguments."""
    position = 0
    while position < len(argv) and argv[position].startswith("-"):
        position += 2 if argv[position] in _OPTIONS_WITH_VALUE | _CHAT_OPTIONS else 1
    return argv[:position], argv[position:]


def _run_without_subcommand(options: list[str]) -> int:
    if {"-V", "--version"}.intersection(options):
        sys.stdout.write(f"{format_version()}\n")
        return 0
    if {"-h", "--help"}.intersection(options):
        sys.stdout.write(f"{format_overview()}\n")
        return 0
    return _run_subcommand(options, [DEFAULT])


def _run_subcommand(before: list[str], argv: list[str]) -> int:
    subcommand = find_subcommand(argv[0])
    if subcommand is None and _is_question(before, argv):
        subcommand, argv = find_subcommand(DEFAULT), [DEFAULT, *argv]
    if subcommand is None:
        return _report_unknown(argv[0])
    arguments = build_parser(subcommand).parse_args([*before, *argv[1:]])
    services = ProcessServices(
        profile_name=getattr(arguments, "chosen_profile", None), color=getattr(arguments, "chosen_color", "auto")
    )
    code: int = load_subcommand(subcommand).run(arguments, services)
    return code


def _is_question(before: list[str], argv: list[str]) -> bool:
    """Return whether the arguments are a question for the agent rather than a misspelt command.

    An argument with a space is a question, and so are several arguments of which the first resembles no command, or any
    arguments after an option of the chat. A single word may be a command of another version: it is never sent.
    """
    if " " in argv[0].strip() or not _CHAT_OPTIONS.isdisjoint(before):
        return True
    non_options = [word for word in argv if not word.startswith("-")]
    return len(non_options) > 1 and not _find_nearest(argv[0], similarity=_VERY_SIMILAR)


def _report_unknown(name: str) -> int:
    nearest = _find_nearest(name, similarity=_SIMILAR)
    hint = f"Did you mean `talaria {nearest}`?" if nearest else "`talaria help` lists the commands."
    ask = "" if nearest else f" To ask the agent, use `talaria chat {name}`."
    sys.stderr.write(f"talaria: There is no command `{name}`. {hint}{ask}\n")
    return USAGE_ERROR


def _find_nearest(name: str, *, similarity: float) -> str:
    from talaria.settings.errors import find_nearest  # noqa: PLC0415 (loaded for an unknown command)

    return find_nearest(name, [subcommand.name for subcommand in SUBCOMMANDS], similarity=similarity)
