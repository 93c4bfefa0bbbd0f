"""What `talaria --help` and `talaria --version` say, made without importing anything else."""

from itertools import groupby

from talaria import __version__
from talaria.app.subcommands import SUBCOMMANDS

_OPTIONS = (
    ("-p, --profile NAME", "Use this profile instead of the active one"),
    ("--color WHEN", "Colours: auto, always or never"),
    ("--debug", "Show where an error came from"),
    ("-h, --help", "Show this, or the help of a command"),
    ("-V, --version", "Show the version"),
)
_ENVIRONMENT = (
    ("TALARIA_HOME", "Folder that holds every profile"),
    ("TALARIA_PROFILE", "Profile to use, where -p names none"),
    ("NO_COLOR", "Not empty: no colours"),
)
_MORE = """\
Without a command it opens the chat, or answers what it reads from a pipe.
`talaria "What is new?"` asks one question.
`talaria help COMMAND` explains a command.
`talaria completion --help` explains completion with the Tab key."""


def version() -> str:
    """Return the answer to ``--version``."""
    return f"talaria {__version__}"


def overview() -> str:
    """Return the answer to ``--help``: every subcommand by group, the options and the environment."""
    groups = groupby(SUBCOMMANDS, key=lambda entry: entry.group)
    sections = [
        "Talaria, a personal AI agent for the terminal, chats and scripts.",
        "Usage: talaria [OPTION ...] [COMMAND [ARGUMENT ...]]",
        *(_section(group, [(entry.name, entry.summary) for entry in entries]) for group, entries in groups),
        _section("Options, before or after the command", _OPTIONS),
        _section("Environment", _ENVIRONMENT),
        _MORE,
    ]
    return "\n\n".join(sections)


def _section(title: str, rows: "tuple[tuple[str, str], ...] | list[tuple[str, str]]") -> str:
    return "\n".join([f"{title}:", *(f"  {word:<20}{meaning}" for word, meaning in rows)])
