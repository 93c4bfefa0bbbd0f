"""All slash commands: the built-in ones, views of them for help and menus, and custom ones from Markdown files."""

import difflib
import re
import signal
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

from msgspec import structs

from talaria.commands.abilities import MEMORY, SANDBOX, TOOLS
from talaria.commands.application import Application
from talaria.commands.approvals import APPROVALS, APPROVE, DENY, PAIRING
from talaria.commands.arguments import split_arguments, substitute_arguments, truncate
from talaria.commands.background import BACKGROUND, BROWSER, CRON
from talaria.commands.branches import BRANCH, DIFF, RETRY, ROLLBACK, UNDO
from talaria.commands.clipboard import COPY, IMAGE, PASTE
from talaria.commands.command import Command, CommandContext, CommandHandler, find_commands, group_help_by_category
from talaria.commands.display import FOOTER, THEME, VERBOSE, VOICE
from talaria.commands.goal import GOAL, SUBGOAL
from talaria.commands.handoff import HANDOFF, MOVE
from talaria.commands.mcp import MCP
from talaria.commands.model import MODEL, PERSONALITY, PROVIDER, REASONING
from talaria.commands.program import CONFIG, HELP, KEYS, QUIT, RESTART, SETHOME, START
from talaria.commands.sessions import HISTORY, NEW, RESUME, SAVE, SEARCH, SESSIONS, TITLE
from talaria.commands.skills import SKILLS, build_skill_commands
from talaria.commands.status import DEBUG, STATUS, USAGE, VERSION, WHOAMI
from talaria.commands.turn_control import COMPRESS, PLAN, QUEUE, STEER, STOP
from talaria.core.errors import Refused
from talaria.core.messages import Text
from talaria.core.text_formats import split_front_matter
from talaria.sessions.transcript_export import format_code_block

REGISTRY: tuple[Command, ...] = (
    NEW,
    RESTART,
    RESUME,
    TITLE,
    SESSIONS,
    SEARCH,
    BRANCH,
    UNDO,
    RETRY,
    ROLLBACK,
    DIFF,
    HISTORY,
    SAVE,
    COMPRESS,
    STATUS,
    USAGE,
    BACKGROUND,
    CRON,
    HANDOFF,
    MOVE,
    SETHOME,
    GOAL,
    SUBGOAL,
    STOP,
    QUEUE,
    STEER,
    APPROVE,
    DENY,
    APPROVALS,
    PLAN,
    IMAGE,
    PASTE,
    MODEL,
    PROVIDER,
    REASONING,
    PERSONALITY,
    TOOLS,
    MCP,
    SKILLS,
    MEMORY,
    SANDBOX,
    BROWSER,
    VERBOSE,
    FOOTER,
    VOICE,
    THEME,
    COPY,
    START,
    HELP,
    KEYS,
    WHOAMI,
    PAIRING,
    CONFIG,
    VERSION,
    DEBUG,
    QUIT,
)
COMMANDS: Mapping[str, str] = {f"/{command.name}": command.help for command in REGISTRY}
COMMANDS_BY_CATEGORY: Mapping[str, Mapping[str, str]] = group_help_by_category(REGISTRY)
GATEWAY_KNOWN_COMMANDS: frozenset[str] = frozenset(
    name for command in REGISTRY if not command.cli_only for name in command.names
)
TIMEOUT_SECONDS = 120.0
_HEADER_FIELDS = ("help", "hint", "aliases", "run")
_CUSTOM_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_MAX_FILE_BYTES = 100_000
_HELP_LENGTH = 80


def resolve_command(name: str, commands: Sequence[Command] = REGISTRY) -> Command | None:
    """Return the command for a name, an alias or a unique prefix, with or without ``/``; else ``None``."""
    found = find_commands(name, commands)
    return found[0] if len(found) == 1 else None


def load_custom_commands(folders: Sequence[Path]) -> tuple[tuple[Command, ...], tuple[str, ...]]:
    """Return the commands in these folders, and a sentence for each problem with a file.

    The first command of a name wins. Built-in names cannot be replaced.
    """
    taken_names = {name: "a built-in command" for command in REGISTRY for name in command.names}
    commands: list[Command] = []
    problems: list[str] = []
    for file in _list_files(folders):
        try:
            command, warnings = _read_command(file)
            command, clashes = _resolve_name_clashes(command, taken_names)
        except Refused as error:
            problems.append(f"{file}: {error}")
            continue
        problems += [f"{file}: {warning}" for warning in (*warnings, *clashes)]
        taken_names |= dict.fromkeys(command.names, str(file))
        commands.append(command)
    return tuple(commands), tuple(problems)


def load_own_commands(application: Application) -> tuple[tuple[Command, ...], tuple[str, ...]]:
    """Return the custom commands and a command for each enabled skill, and the problems of custom ones.

    A skill whose name is taken by another command has none.
    """
    custom, problems = load_custom_commands(application.command_folders)
    taken = {name for command in (*REGISTRY, *custom) for name in command.names}
    return (*custom, *build_skill_commands(application.knowledge.skills.list(), taken)), problems


def _list_files(folders: Iterable[Path]) -> list[Path]:
    return [file for folder in folders for file in sorted(folder.glob("*.md"))]


def _read_command(file: Path) -> tuple[Command, list[str]]:
    """Return the command of a file and its warnings; raises `Refused` if the file is unusable."""
    name = file.stem.lower()
    if not _CUSTOM_NAME.fullmatch(name):
        raise Refused("the file name can't be a command name: use letters, digits, `-` and `_`.")
    text = _read_text(file)
    fields, body = split_front_matter(text)
    if not fields and text.lstrip("\ufeff").startswith("---\n"):
        raise Refused("the header isn't closed: add a line `---` after it.")
    line = fields.get("run", "")
    if not line and ("run" in fields or not body):
        raise Refused("it has neither a prompt nor a command to run.")
    run: CommandHandler = partial(_run_shell_line, line) if line else partial(_send_prompt, body)
    command = Command(
        name=name,
        category="Your own",
        help=fields.get("help") or _take_first_line(f"Run `{line}`" if line else body),
        hint=fields.get("hint", ""),
        aliases=tuple(re.findall(r"[a-z0-9][a-z0-9_-]*", fields.get("aliases", "").lower())),
        who="owner" if line else "anyone",
        run=run,
    )
    return command, [_describe_unknown_field(field) for field in fields if field not in _HEADER_FIELDS]


def _read_text(file: Path) -> str:
    if not file.is_file():
        raise Refused("it isn't a file.")
    try:
        with file.open("rb") as stream:
            raw = stream.read(_MAX_FILE_BYTES + 1)
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Refused("it isn't UTF-8 text.") from error
    except OSError as error:
        raise Refused(f"it can't be read: {error.strerror}.") from error
    if len(raw) > _MAX_FILE_BYTES:
        raise Refused(f"it is longer than {_MAX_FILE_BYTES:,} bytes.")
    return text.replace("\r\n", "\n")


def _resolve_name_clashes(command: Command, taken_names: dict[str, str]) -> tuple[Command, list[str]]:
    """Return the command without taken aliases, and notices about them; raises `Refused` for a taken name."""
    if command.name in taken_names:
        raise Refused(f"`/{command.name}` is already {_describe_owner(taken_names[command.name])}; rename the file.")
    free = tuple(
        alias for alias in dict.fromkeys(command.aliases) if alias not in taken_names and alias != command.name
    )
    clashes = [
        f"`/{alias}` is already {_describe_owner(taken_names[alias])}."
        for alias in command.aliases
        if alias in taken_names
    ]
    return structs.replace(command, aliases=free), clashes


def _describe_owner(owner: str) -> str:
    return owner if owner.startswith("a ") else f"a command of {owner}"


def _describe_unknown_field(field: str) -> str:
    near = difflib.get_close_matches(field, _HEADER_FIELDS, n=1)
    suggestion = (
        f"did you mean `{near[0]}:`?"
        if near
        else (f"known fields are {', '.join(f'`{one}:`' for one in _HEADER_FIELDS)}.")
    )
    return f"unknown field `{field}:`; {suggestion}"


def _take_first_line(text: str) -> str:
    return truncate(text.partition("\n")[0].strip("# "), _HELP_LENGTH)


async def _send_prompt(body: str, context: CommandContext) -> None:
    await context.active_session.put(Text(substitute_arguments(body, context.arguments)), sender=context.sender)


async def _run_shell_line(line: str, context: CommandContext) -> None:
    workspace = context.active_session.chat.workspace
    result = await context.application.shell.run(
        line, split_arguments(context.arguments), workspace, seconds=TIMEOUT_SECONDS
    )
    parts = [format_code_block(result.output)] if result.output.strip() else []
    if result.code is None:
        parts.append(f"Stopped after {TIMEOUT_SECONDS:.0f} s.")
    elif result.code:
        parts.append(
            f"Exit code {result.code}." if result.code > 0 else f"Ended by {signal.Signals(-result.code).name}."
        )
    context.surface.show("\n\n".join(parts) or "Done. There was no output.")
