"""Texts of `talaria --help` and `talaria --version`, built with few imports."""

from itertools import groupby

from talaria import __version__
from talaria.app.command_line.subcommands import SUBCOMMANDS

_OPTIONS = (
    ("-p, --profile NAME", "Use this profile instead of the active one"),
    ("--color WHEN", "Colours: auto, always or never"),
    ("--debug", "Show the traceback of an error"),
    ("-h, --help", "Show this help, or the help of a command"),
    ("-V, --version", "Show the version"),
)
_ENVIRONMENT = (
    ("TALARIA_HOME", "Folder that contains all profiles"),
    ("TALARIA_PROFILE", "Profile to use unless -p is given"),
    ("NO_COLOR", "If set, disables colours"),
)
_FOOTER = """\
Without a command, it opens the chat, or answers the text from a pipe.
`talaria "What is new?"` asks one question.
`talaria help COMMAND` explains a command.
`talaria completion --help` explains completion with the Tab key."""


def version() -> str:
    """Return the output of ``--version``."""
    return f"talaria {__version__}"


def overview() -> str:
    """Return the output of ``--help``: every subcommand by group, the options and the environment."""
    groups = groupby(SUBCOMMANDS, key=lambda entry: entry.group)
    sections = [
        "Talaria, a personal AI agent for the terminal, chats and scripts.",
        "Usage: talaria [OPTION ...] [COMMAND [ARGUMENT ...]]",
        *(_format_section(group, [(entry.name, entry.summary) for entry in entries]) for group, entries in groups),
        _format_section("Options, before or after the command", _OPTIONS),
        _format_section("Environment", _ENVIRONMENT),
        _FOOTER,
    ]
    return "\n\n".join(sections)


def _format_section(title: str, rows: "tuple[tuple[str, str], ...] | list[tuple[str, str]]") -> str:
    return "\n".join([f"{title}:", *(f"  {word:<20}{meaning}" for word, meaning in rows)])
