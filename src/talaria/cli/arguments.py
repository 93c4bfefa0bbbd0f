"""The parser that every subcommand gets, and how an argument asks to be completed by the shell."""

import argparse
from typing import Any, NoReturn, TypeVar

COLOR_CHOICES = ("auto", "always", "never")
MISUSED = 2

A = TypeVar("A", bound=argparse.Action)


class Parser(argparse.ArgumentParser):
    """A parser that knows the options of every command and answers misuse with a sentence.

    The parsers of a subcommand's actions are of this class too, so those options may stand before or after
    the action. Their names never clash with a subcommand's own: all begin with ``chosen_``.
    """

    def __init__(self, **described: Any) -> None:
        super().__init__(
            **{"formatter_class": _HelpOfFixedWidth, **described, "add_help": False, "allow_abbrev": False}
        )
        self.register("action", "parsers", _DescribedActions)
        every = self.add_argument_group("options of every command", argument_default=argparse.SUPPRESS)
        profile = every.add_argument("-p", "--profile", dest="chosen_profile", metavar="NAME", help="use this profile")
        completing(profile, "profiles")
        every.add_argument("--color", dest="chosen_color", choices=COLOR_CHOICES, help="when to use colours")
        every.add_argument("--debug", dest="chosen_debug", action="store_true", help="show where an error came from")
        every.add_argument("-h", "--help", action="help", help="show this help")

    def error(self, message: str) -> NoReturn:
        """Say what was misunderstood and where to read more, and leave with exit code 2."""
        topic = " ".join(["talaria help", *self.prog.split()[1:]])
        self.exit(MISUSED, f"{self.prog}: {message}\nSee `{topic}`.\n")


def completing(action: A, values: str) -> A:
    """Mark an argument as one that the shell completes, and return it.

    ``values`` is ``files``, ``folders``, or one of the lists of `talaria completion --values`: ``profiles``,
    ``settings``, ``sessions``, ``tools``.
    """
    vars(action)["completes"] = values
    return action


class _HelpOfFixedWidth(argparse.RawDescriptionHelpFormatter):
    """Help for 80 columns everywhere: asking for the terminal's width would import more than all our parsers need."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=79, max_help_position=26)


class _DescribedActions(argparse._SubParsersAction):  # type: ignore[type-arg]  # noqa: SLF001 -- it has no public name
    """Actions whose own help begins with what the help above says of them."""

    def add_parser(self, name: str, **described: Any) -> Any:
        summary = described.get("help") or ""
        described.setdefault("description", f"{summary[:1].upper()}{summary[1:]}." if summary else None)
        return super().add_parser(name, **described)
