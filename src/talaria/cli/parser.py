"""Argument parser of all subcommands, and completion hints for arguments."""

import argparse
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

COLOR_CHOICES = ("auto", "always", "never")
USAGE_ERROR = 2

_COMMON = "Common options: --profile, --color, --debug, --help; see `talaria help`.\n"
_COMMON_WITH_VALUE = ("-p", "--profile", "--color")

A = TypeVar("A", bound=argparse.Action)


class Parser(argparse.ArgumentParser):
    """Parser with the global options, and error messages as sentences.

    The parsers of a subcommand's actions have this class too, so global options may stand before or after the action.
    Their names start with ``chosen_`` and never clash with a subcommand's own. ``set_defaults(action=…)`` names the
    action that runs if none is given.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(
            **{"formatter_class": _FixedWidthFormatter, **options, "add_help": False, "allow_abbrev": False}
        )
        self._tokens: list[str] = []
        self.register("action", "parsers", _DescribedSubparsers)
        common = self.add_argument_group("options of every command", argument_default=argparse.SUPPRESS)
        profile = common.add_argument("-p", "--profile", dest="chosen_profile", metavar="NAME", help="use this profile")
        add_completion(profile, "profiles")
        color = common.add_argument("--color", dest="chosen_color", choices=COLOR_CHOICES, help="when to use colours")
        debug = common.add_argument(
            "--debug", dest="chosen_debug", action="store_true", help="show the traceback of an error"
        )
        help_ = common.add_argument("-h", "--help", action="help", help="show this help")
        for action in (profile, color, debug, help_):
            vars(action)["common"] = True

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Parse a command line; an unknown option is answered with the most similar one."""
        tokens = self._insert_default_action(list(args or ()))
        parsed, rest = self.parse_known_args(tokens, namespace)
        if rest:
            self.error(f"unrecognized arguments: {' '.join(rest)}.{self._suggest_flag(rest, parsed)}")
        return parsed

    def parse_known_args(self, args: Any = None, namespace: Any = None, **options: Any) -> Any:
        """Parse what is known, and remember the arguments for the error message.

        argparse gives a list of arguments only those before the next option. Others are added to it here.
        """
        self._tokens = list(args or ())
        parsed, rest = super().parse_known_args(args, namespace, **options)
        last = next(reversed(self._get_positional_actions()), None)
        if last is not None and last.nargs == "*" and not any(one.startswith("-") for one in rest):
            setattr(parsed, last.dest, [*getattr(parsed, last.dest), *rest])
            rest = []
        return parsed, rest

    def error(self, message: str) -> NoReturn:
        """Print the error, the option that was probably meant and where to read more, and exit with code 2."""
        topic = " ".join(["talaria help", *self.prog.split()[1:]])
        is_complete = message.endswith(("?", "."))
        hint = "" if is_complete else self._suggest_flag(self._find_unknown_flags(), argparse.Namespace())
        self.exit(USAGE_ERROR, f"{self.prog}: {message}{'.' if hint else ''}{hint}\nSee `{topic}`.\n")

    def _find_unknown_flags(self) -> list[str]:
        """Return the options that were given and don't exist: argparse reports a missing argument before them."""
        given = [token.partition("=")[0] for token in self._tokens if token.startswith("--")]
        return [flag for flag in given if flag.strip("-") and flag not in _list_flags(self, None)]

    def format_help(self) -> str:
        """Return the help, with the global options on one line."""
        return f"{super().format_help()}\n{_COMMON}"

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        choices = [str(choice) for choice in action.choices]
        close = _find_nearest(str(value), choices)
        what = "action" if isinstance(action.choices, Mapping) else f"choice for {_format_name(action)}"
        self.error(
            f"`{value}` isn't a valid {what}. " + (f"Did you mean `{close}`?" if close else _list_choices(choices))
        )

    def _insert_default_action(self, tokens: list[str]) -> list[str]:
        """Return the arguments, with the default action first if none is given."""
        default = self.get_default("action")
        if not isinstance(default, str):
            return tokens
        first = _find_first_argument(tokens)
        return tokens if first in ("-h", "--help") or (not first.startswith("-") and first) else [default, *tokens]

    def _suggest_flag(self, rest: list[str], parsed: argparse.Namespace) -> str:
        wrong = next((word.partition("=")[0] for word in rest if word.startswith("-")), "")
        names = {flag.lstrip("-"): flag for flag in _list_flags(self, getattr(parsed, "action", None))}
        close = _find_nearest(wrong.lstrip("-"), list(names)) if wrong else ""
        return f" Did you mean `{names[close]}`?" if close else ""


def add_completion(action: A, values: str) -> A:
    """Mark an argument for shell completion and return it.

    ``values`` is ``files``, ``folders``, or one of the lists of `talaria completion --values`: ``profiles``,
    ``settings``, ``sessions``, ``tools``, ``skills``.
    """
    vars(action)["completes"] = values
    return action


class _FixedWidthFormatter(argparse.RawDescriptionHelpFormatter):
    """Help formatter for 80 columns; detecting the terminal's width would need slow imports.

    Global options are omitted, since they are the same everywhere.
    """

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=79, max_help_position=26)

    def add_usage(self, usage: Any, actions: Iterable[argparse.Action], groups: Any, prefix: Any = None) -> None:
        super().add_usage(usage, _drop_common_options(actions), groups, prefix)

    def add_arguments(self, actions: Iterable[argparse.Action]) -> None:
        super().add_arguments(_drop_common_options(actions))


class _DescribedSubparsers(argparse._SubParsersAction):  # type: ignore[type-arg]  # noqa: SLF001 -- it has no public name
    """Subparsers whose help starts with their description in the parent's help."""

    def add_parser(self, name: str, **options: Any) -> Any:
        summary = options.get("help") or ""
        options.setdefault("description", f"{summary[:1].upper()}{summary[1:]}." if summary else None)
        return super().add_parser(name, **options)


def _drop_common_options(actions: Iterable[argparse.Action]) -> list[argparse.Action]:
    return [action for action in actions if not vars(action).get("common")]


def _find_first_argument(tokens: list[str]) -> str:
    """Return the first argument that is not a global option; empty if there is none."""
    position = 0
    while position < len(tokens):
        word = tokens[position]
        if word in _COMMON_WITH_VALUE:
            position += 2
        elif word == "--debug" or word.startswith(("--profile=", "--color=")):
            position += 1
        else:
            return word
    return ""


def _list_flags(parser: argparse.ArgumentParser, chosen: str | None) -> list[str]:
    """Return the options of a parser and of the chosen action."""
    actions = parser._actions  # noqa: SLF001 -- argparse offers no other way to ask
    found = [flag for action in actions for flag in action.option_strings if flag.startswith("--")]
    subparsers = [action.choices[chosen] for action in actions if isinstance(action.choices, Mapping) and chosen]
    return [*found, *(flag for one in subparsers for flag in _list_flags(one, None))]


def _format_name(action: argparse.Action) -> str:
    return "/".join(action.option_strings) or str(action.metavar or action.dest)


def _list_choices(choices: list[str]) -> str:
    return f"Choose from: {', '.join(choices)}."


def _find_nearest(name: str, known: list[str]) -> str:
    # Imported here because only errors need it.
    from talaria.settings.errors import find_nearest  # noqa: PLC0415 -- see above

    return find_nearest(name, known)
