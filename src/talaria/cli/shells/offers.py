"""What to offer at each place of a command line, in the one form that all shells' scripts are made from.

A script reads the words before the cursor and keeps a path (``talaria config``), the option that waits for
its value, and how many positional arguments have gone by. These make a key that it looks up here.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from shlex import quote

from talaria.cli.command_tree import Argument, Command


@dataclass(frozen=True, slots=True)
class Offer:
    """Candidates for one key: words with what they mean, or the name of a list to be fetched.

    Keys: ``path --option`` for an option's value, ``path -`` for the options, ``path 0`` for the first
    positional argument. A ``*`` stands for any path at the front and for any position at the end.
    """

    key: str
    words: tuple[tuple[str, str], ...] = ()
    values: str = ""


def flags_with_value(program: Command) -> list[str]:
    """Return the keys of the options that take the word behind them."""
    return [key for key, _ in _valued_options(program)]


def steps(program: Command) -> list[str]:
    """Return every path below the program's own: a word that leads to one of them is an action, not an argument."""
    return [" ".join(command.path) for command in program.walk() if command is not program]


def offers(program: Command) -> list[Offer]:
    """Return what to offer, key by key; where two keys fit, the first counts."""
    found = [_offer(key, option) for key, option in _valued_options(program)]
    found += [offer for command in program.walk() for offer in _command_offers(command)]
    return [offer for offer in found if offer.words or offer.values]


def fill(script: str, cases: Mapping[str, Iterable[str]]) -> str:
    """Put lines in the places of a script that are marked ``@NAME@``, with the mark's own indentation."""
    lines = []
    for line in script.splitlines():
        mark = line.strip()
        indentation = line[: len(line) - len(line.lstrip())]
        lines += [indentation + case for case in cases[mark]] if mark in cases else [line]
    return "\n".join(lines) + "\n"


def pattern(key: str) -> str:
    """Return a key as a pattern of bash and zsh: quoted, except for its ``*``."""
    return "*".join(quote(part) if part else "" for part in key.split("*"))


def _valued_options(program: Command) -> Iterator[tuple[str, Argument]]:
    """Yield the options with a value under their keys; those of every command come once, with any path."""
    for command in program.walk():
        path = "*" if command is program else " ".join(command.path)
        for option in command.options:
            if option.name and (command is program or option not in program.options):
                yield from ((f"{path} {flag}", option) for flag in option.flags)


def _command_offers(command: Command) -> Iterator[Offer]:
    path = " ".join(command.path)
    yield Offer(f"{path} -", tuple((flag, option.help) for option in command.options for flag in option.flags))
    if command.actions:
        yield Offer(f"{path} 0", tuple((action.path[-1], action.summary) for action in command.actions))
    for place, argument in enumerate(command.positionals):
        yield _offer(f"{path} {'*' if argument.repeated else place}", argument)


def _offer(key: str, argument: Argument) -> Offer:
    return Offer(key, tuple((choice, "") for choice in argument.choices), argument.completes or "")
