"""The parser that every subcommand gets, and how an argument asks to be completed by the shell."""

import argparse
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

COLOR_CHOICES = ("auto", "always", "never")
MISUSED = 2

_COMMON = "Common options: --profile, --color, --debug, --help; see `talaria help`.\n"
_COMMON_WITH_VALUE = ("-p", "--profile", "--color")

A = TypeVar("A", bound=argparse.Action)


class Parser(argparse.ArgumentParser):
    """A parser that knows the options of every command and answers misuse with a sentence.

    The parsers of a subcommand's actions are of this class too, so those options may stand before or after
    the action. Their names never clash with a subcommand's own: all begin with ``chosen_``. Where
    ``set_defaults(action=…)`` names an action, that one runs if none is given.
    """

    def __init__(self, **described: Any) -> None:
        super().__init__(
            **{"formatter_class": _HelpOfFixedWidth, **described, "add_help": False, "allow_abbrev": False}
        )
        self.register("action", "parsers", _DescribedActions)
        every = self.add_argument_group("options of every command", argument_default=argparse.SUPPRESS)
        profile = every.add_argument("-p", "--profile", dest="chosen_profile", metavar="NAME", help="use this profile")
        completing(profile, "profiles")
        color = every.add_argument("--color", dest="chosen_color", choices=COLOR_CHOICES, help="when to use colours")
        debug = every.add_argument(
            "--debug", dest="chosen_debug", action="store_true", help="show where an error came from"
        )
        help_ = every.add_argument("-h", "--help", action="help", help="show this help")
        for action in (profile, color, debug, help_):
            vars(action)["common"] = True

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Parse a command line; an unknown option is answered with the one most like it."""
        words = self._with_action(list(args or ()))
        parsed, rest = self.parse_known_args(words, namespace)
        if rest:
            self.error(f"unrecognized arguments: {' '.join(rest)}.{self._suggest_flag(rest, parsed)}")
        return parsed

    def error(self, message: str) -> NoReturn:
        """Print what was misunderstood and where to read more, and leave with exit code 2."""
        topic = " ".join(["talaria help", *self.prog.split()[1:]])
        self.exit(MISUSED, f"{self.prog}: {message}\nSee `{topic}`.\n")

    def format_help(self) -> str:
        """Return the help, with the options of every command in one line."""
        return f"{super().format_help()}\n{_COMMON}"

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        choices = [str(choice) for choice in action.choices]
        close = _nearest(str(value), choices)
        what = "action" if isinstance(action.choices, Mapping) else f"choice for {_name(action)}"
        self.error(f"`{value}` is no {what}. " + (f"Did you mean `{close}`?" if close else _one_of(choices)))

    def _with_action(self, words: list[str]) -> list[str]:
        """Return the words, with the default action in front where none is given."""
        default = self.get_default("action")
        if not isinstance(default, str):
            return words
        given = _first_own(words)
        return words if given in ("-h", "--help") or (not given.startswith("-") and given) else [default, *words]

    def _suggest_flag(self, rest: list[str], parsed: argparse.Namespace) -> str:
        wrong = next((word.partition("=")[0] for word in rest if word.startswith("-")), "")
        names = {flag.lstrip("-"): flag for flag in _flags(self, getattr(parsed, "action", None))}
        close = _nearest(wrong.lstrip("-"), list(names)) if wrong else ""
        return f" Did you mean `{names[close]}`?" if close else ""


def completing(action: A, values: str) -> A:
    """Mark an argument as one that the shell completes, and return it.

    ``values`` is ``files``, ``folders``, or one of the lists of `talaria completion --values`: ``profiles``,
    ``settings``, ``sessions``, ``tools``.
    """
    vars(action)["completes"] = values
    return action


class _HelpOfFixedWidth(argparse.RawDescriptionHelpFormatter):
    """Help for 80 columns everywhere: asking for the terminal's width would import more than all our parsers need.

    The options of every command are left out, since they are the same everywhere.
    """

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=79, max_help_position=26)

    def add_usage(self, usage: Any, actions: Iterable[argparse.Action], groups: Any, prefix: Any = None) -> None:
        super().add_usage(usage, _own(actions), groups, prefix)

    def add_arguments(self, actions: Iterable[argparse.Action]) -> None:
        super().add_arguments(_own(actions))


class _DescribedActions(argparse._SubParsersAction):  # type: ignore[type-arg]  # noqa: SLF001 -- it has no public name
    """Actions whose own help begins with what the help above says of them."""

    def add_parser(self, name: str, **described: Any) -> Any:
        summary = described.get("help") or ""
        described.setdefault("description", f"{summary[:1].upper()}{summary[1:]}." if summary else None)
        return super().add_parser(name, **described)


def _own(actions: Iterable[argparse.Action]) -> list[argparse.Action]:
    return [action for action in actions if not vars(action).get("common")]


def _first_own(words: list[str]) -> str:
    """Return the first word that is no option of every command; empty if there is none."""
    position = 0
    while position < len(words):
        word = words[position]
        if word in _COMMON_WITH_VALUE:
            position += 2
        elif word == "--debug" or word.startswith(("--profile=", "--color=")):
            position += 1
        else:
            return word
    return ""


def _flags(parser: argparse.ArgumentParser, chosen: str | None) -> list[str]:
    """Return the options of a parser and of the action that was chosen."""
    actions = parser._actions  # noqa: SLF001 -- argparse offers no other way to ask
    found = [flag for action in actions for flag in action.option_strings if flag.startswith("--")]
    below = [action.choices[chosen] for action in actions if isinstance(action.choices, Mapping) and chosen]
    return [*found, *(flag for one in below for flag in _flags(one, None))]


def _name(action: argparse.Action) -> str:
    return "/".join(action.option_strings) or str(action.metavar or action.dest)


def _one_of(choices: list[str]) -> str:
    return f"Choose from: {', '.join(choices)}."


def _nearest(name: str, known: list[str]) -> str:
    # Only a mistake needs this: whoever makes none does not wait for it.
    from talaria.settings.faults import nearest  # noqa: PLC0415 -- see above

    return nearest(name, known)
