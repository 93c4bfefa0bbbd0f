"""One run of one subcommand: find it, parse its arguments, hand it what it needs."""

import sys

from talaria.app.overview import overview, version
from talaria.app.parsers import build_parser
from talaria.app.services import ProcessServices
from talaria.app.subcommands import SUBCOMMANDS, find_subcommand, load
from talaria.cli.arguments import MISUSED
from talaria.core.umask import restrict_umask

DEFAULT = "chat"
_WITH_VALUE = {"-p", "--profile", "--color"}
_SIMILAR, _VERY_SIMILAR = 0.75, 0.8  # `what` is like `chat` (0.75), but begins a question
_OF_CHAT = {"-q", "--query", "-r", "--resume", "-m", "--model", "-i", "--image"}  # each with a value


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
        position += 2 if words[position] in _WITH_VALUE | _OF_CHAT else 1
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
    if subcommand is None and _is_question(before, words):
        subcommand, words = find_subcommand(DEFAULT), [DEFAULT, *words]
    if subcommand is None:
        return _refuse(words[0])
    arguments = build_parser(subcommand).parse_args([*before, *words[1:]])
    services = ProcessServices(
        profile_name=getattr(arguments, "chosen_profile", None), color=getattr(arguments, "chosen_color", "auto")
    )
    code: int = load(subcommand.module).run(arguments, services)
    return code


def _is_question(before: list[str], words: list[str]) -> bool:
    """Return whether the words are a question for the agent rather than a misspelt command.

    A sentence in quotes is one, and so are several words of which the first is like no command, or whatever follows
    an option of the chat. A single word may always be a command of another version: it is not sent anywhere.
    """
    if " " in words[0].strip() or not _OF_CHAT.isdisjoint(before):
        return True
    said = [word for word in words if not word.startswith("-")]
    return len(said) > 1 and not _nearest(words[0], similarity=_VERY_SIMILAR)


def _refuse(name: str) -> int:
    nearest = _nearest(name, similarity=_SIMILAR)
    hint = f"Did you mean `talaria {nearest}`?" if nearest else "`talaria help` lists the commands."
    ask = "" if nearest else f" To ask the agent, use `talaria chat {name}`."
    sys.stderr.write(f"talaria: There is no command `{name}`. {hint}{ask}\n")
    return MISUSED


def _nearest(name: str, *, similarity: float) -> str:
    names = [subcommand.name for subcommand in SUBCOMMANDS]
    nearest: str = load("talaria.settings.faults").nearest(name, names, similarity=similarity)
    return nearest
