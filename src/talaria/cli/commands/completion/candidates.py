"""Completion candidates by position on the command line, shared by all shell scripts.

A script reads the words before the cursor and tracks a path (``talaria config``), the option that needs a value, and
the number of positional arguments so far. Together they form a key that is looked up here.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from shlex import quote

from talaria.cli.parser_tree import Argument, CommandSpec


@dataclass(frozen=True, slots=True)
class CompletionOffer:
    """Candidates for one key: words with descriptions, or the name of a list to fetch.

    Keys: ``path --option`` for an option's value, ``path -`` for the options, ``path 0`` for the first
    positional argument. A ``*`` matches any path at the start and any position at the end.
    """

    key: str
    candidates: tuple[tuple[str, str], ...] = ()
    values: str = ""


def list_valued_flags(program: CommandSpec) -> list[str]:
    """Return the keys of the options that take a value."""
    return [key for key, _ in _list_valued_options(program)]


def list_command_paths(program: CommandSpec) -> list[str]:
    """Return every path below the program's own; words that extend a path are actions, not arguments."""
    return [" ".join(command.path) for command in program.walk() if command is not program]


def list_offers(program: CommandSpec) -> list[CompletionOffer]:
    """Return the candidates by key; if two keys match, the first wins."""
    found = [_build_offer(key, option) for key, option in _list_valued_options(program)]
    found += [offer for command in program.walk() for offer in _list_command_offers(command)]
    return [offer for offer in found if offer.candidates or offer.values]


def fill_template(script: str, cases: Mapping[str, Iterable[str]]) -> str:
    """Replace each ``@NAME@`` marker of a script by lines, keeping the marker's indentation."""
    lines = []
    for line in script.splitlines():
        mark = line.strip()
        indentation = line[: len(line) - len(line.lstrip())]
        lines += [indentation + case for case in cases[mark]] if mark in cases else [line]
    return "\n".join(lines) + "\n"


def quote_pattern(key: str) -> str:
    """Return a key as a pattern for bash and zsh: quoted, except for ``*``."""
    return "*".join(quote(part) if part else "" for part in key.split("*"))


def _list_valued_options(program: CommandSpec) -> Iterator[tuple[str, Argument]]:
    """Yield options with a value by key; global options appear once, with any path."""
    for command in program.walk():
        path = "*" if command is program else " ".join(command.path)
        for option in command.options:
            if option.name and (command is program or option not in program.options):
                yield from ((f"{path} {flag}", option) for flag in option.flags)


def _list_command_offers(command: CommandSpec) -> Iterator[CompletionOffer]:
    path = " ".join(command.path)
    yield CompletionOffer(
        f"{path} -", tuple((flag, option.help) for option in command.options for flag in option.flags)
    )
    if command.actions:
        yield CompletionOffer(f"{path} 0", tuple((action.path[-1], action.summary) for action in command.actions))
    for position, argument in enumerate(command.positionals):
        yield _build_offer(f"{path} {'*' if argument.repeated else position}", argument)


def _build_offer(key: str, argument: Argument) -> CompletionOffer:
    return CompletionOffer(key, tuple((choice, "") for choice in argument.choices), argument.completes or "")
