"""What the whole command line accepts, as plain data: for shell completion and for the reference."""

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Argument:
    """One option, or one positional argument where ``flags`` is empty.

    ``name`` stands for its value in texts, and is empty where it takes none.
    """

    flags: tuple[str, ...] = ()
    name: str = ""
    help: str = ""
    required: bool = False
    repeated: bool = False
    choices: tuple[str, ...] = ()
    completes: str | None = None


@dataclass(frozen=True, slots=True)
class Command:
    """A subcommand, or an action of one, with everything that may follow it."""

    path: tuple[str, ...]
    summary: str
    options: tuple[Argument, ...] = ()
    positionals: tuple[Argument, ...] = ()
    actions: tuple["Command", ...] = ()

    def walk(self) -> Iterator["Command"]:
        """Yield this and all below it, each before its own actions."""
        yield self
        for action in self.actions:
            yield from action.walk()


def read_parser(path: tuple[str, ...], summary: str, parser: argparse.ArgumentParser) -> Command:
    """Return what a parser accepts; hidden arguments and hidden actions are left out."""
    # argparse offers no other way to ask a parser what it accepts.
    actions = [action for action in parser._actions if action.help != argparse.SUPPRESS]  # noqa: SLF001
    arguments = [_argument(action) for action in actions if not isinstance(action.choices, Mapping)]
    return Command(
        path=path,
        summary=summary,
        options=tuple(argument for argument in arguments if argument.flags),
        positionals=tuple(argument for argument in arguments if not argument.flags),
        actions=tuple(below for action in actions for below in _actions_below(path, action)),
    )


def _actions_below(path: tuple[str, ...], action: argparse.Action) -> Iterator[Command]:
    if not isinstance(action.choices, Mapping):
        return
    for named in action._get_subactions():  # type: ignore[attr-defined]  # noqa: SLF001
        if named.help != argparse.SUPPRESS:
            yield read_parser((*path, named.dest), _help(named), action.choices[named.dest])


def _argument(action: argparse.Action) -> Argument:
    return Argument(
        flags=tuple(action.option_strings),
        name=_value_name(action),
        help=_help(action),
        required=action.required,
        repeated=action.nargs in {"*", "+"},
        choices=tuple(str(choice) for choice in action.choices or ()),
        completes=vars(action).get("completes"),
    )


def _value_name(action: argparse.Action) -> str:
    if action.nargs == 0:
        return ""
    if isinstance(action.metavar, str):
        return action.metavar
    return "|".join(map(str, action.choices)) if action.choices else action.dest.upper()


def _help(action: argparse.Action) -> str:
    return (action.help or "") % {**vars(action), "prog": "talaria"}
