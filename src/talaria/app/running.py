"""One run of one subcommand: find it, parse its words, hand it what it needs."""

import sys

from talaria.app.overview import overview, version
from talaria.app.parsers import build_parser
from talaria.app.services import ProcessServices
from talaria.app.subcommands import SUBCOMMANDS, find_subcommand, load
from talaria.cli.arguments import MISUSED
from talaria.core.umask import restrict_umask

DEFAULT = "chat"
_WITH_VALUE = {"-p", "--profile", "--color"}


def run(words: list[str]) -> int:
    """Do what the words say and return the exit code; all files that are created meanwhile are private."""
    restrict_umask()
    before, rest = _divide(words)
    if rest[:1] == ["help"]:
        before, rest = (before, [*rest[1:], "--help"]) if rest[1:] else (["--help"], [])
    try:
        return _run_subcommand(before, rest) if rest else _answer(before)
    except SystemExit as left:  # argparse leaves this way, having said what it had to say
        return left.code if isinstance(left.code, int) else MISUSED


def _divide(words: list[str]) -> tuple[list[str], list[str]]:
    """Part the options before the subcommand from the subcommand and what follows."""
    position = 0
    while position < len(words) and words[position].startswith("-"):
        position += 2 if words[position] in _WITH_VALUE else 1
    return words[:position], words[position:]


def _answer(options: list[str]) -> int:
    if {"-V", "--version"}.intersection(options):
        sys.stdout.write(f"{version()}\n")
        return 0
    if {"-h", "--help"}.intersection(options):
        sys.stdout.write(f"{overview()}\n")
        return 0
    return _run_subcommand(options, [DEFAULT])


def _run_subcommand(before: list[str], words: list[str]) -> int:
    subcommand = find_subcommand(words[0])
    if subcommand is None:
        return _refuse(words[0])
    arguments = build_parser(subcommand).parse_args([*before, *words[1:]])
    services = ProcessServices(
        profile_name=getattr(arguments, "chosen_profile", None), color=getattr(arguments, "chosen_color", "auto")
    )
    code: int = load(subcommand.module).run(arguments, services)
    return code


def _refuse(name: str) -> int:
    nearest: str = load("talaria.settings.faults").nearest(name, [subcommand.name for subcommand in SUBCOMMANDS])
    hint = f"Did you mean `talaria {nearest}`?" if nearest else "`talaria help` lists those there are."
    sys.stderr.write(f"talaria: There is no command `{name}`. {hint}\n")
    return MISUSED
