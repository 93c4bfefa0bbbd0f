"""Complete command line as plain data, for shell completion and the reference."""

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Argument:
    """Option, or positional argument if ``flags`` is empty.

    ``name`` is the placeholder of its value; empty if it takes none.
    """

    flags: tuple[str, ...] = ()
    name: str = ""
    help: str = ""
    required: bool = False
    repeated: bool = False
    choices: tuple[str, ...] = ()
    completes: str | None = None


@dataclass(frozen=True, slots=True)
class CommandSpec:
    """Subcommand or action, with its arguments and actions."""

    path: tuple[str, ...]
    summary: str
    options: tuple[Argument, ...] = ()
    positionals: tuple[Argument, ...] = ()
    actions: tuple["CommandSpec", ...] = ()

    def walk(self) -> Iterator["CommandSpec"]:
        """Yield this command and all below it, parents first."""
        yield self
        for action in self.actions:
            yield from action.walk()


def read_parser(path: tuple[str, ...], summary: str, parser: argparse.ArgumentParser) -> CommandSpec:
    """Return the data of a parser, without hidden arguments and actions."""
    # argparse offers no other way to ask a parser what it accepts.
    actions = [action for action in parser._actions if action.help != argparse.SUPPRESS]  # noqa: SLF001
    arguments = [_read_argument(action) for action in actions if not isinstance(action.choices, Mapping)]
    return CommandSpec(
        path=path,
        summary=summary,
        options=tuple(argument for argument in arguments if argument.flags),
        positionals=tuple(argument for argument in arguments if not argument.flags),
        actions=tuple(below for action in actions for below in _read_actions(path, action)),
    )


def _read_actions(path: tuple[str, ...], action: argparse.Action) -> Iterator[CommandSpec]:
    if not isinstance(action.choices, Mapping):
        return
    for subaction in action._get_subactions():  # type: ignore[attr-defined]  # noqa: SLF001
        if subaction.help != argparse.SUPPRESS:
            yield read_parser((*path, subaction.dest), _get_help(subaction), action.choices[subaction.dest])


def _read_argument(action: argparse.Action) -> Argument:
    return Argument(
        flags=tuple(action.option_strings),
        name=_get_value_name(action),
        help=_get_help(action),
        required=action.required,
        repeated=action.nargs in {"*", "+"},
        choices=tuple(str(choice) for choice in action.choices or ()),
        completes=vars(action).get("completes"),
    )


def _get_value_name(action: argparse.Action) -> str:
    if action.nargs == 0:
        return ""
    if isinstance(action.metavar, str):
        return action.metavar
    return "|".join(map(str, action.choices)) if action.choices else action.dest.upper()


def _get_help(action: argparse.Action) -> str:
    return (action.help or "") % {**vars(action), "prog": "talaria"}
