"""Registry of all slash commands, and views of it for help, menus and access checks."""

from collections.abc import Mapping, Sequence

from talaria.commands.abilities import MEMORY, SANDBOX, TOOLS
from talaria.commands.approvals import APPROVALS, APPROVE, DENY, PAIRING
from talaria.commands.background import BACKGROUND, BROWSER
from talaria.commands.branches import BRANCH, RETRY, UNDO
from talaria.commands.checkpoints import DIFF, ROLLBACK
from talaria.commands.clipboard import COPY, IMAGE, PASTE
from talaria.commands.command import Command, find_commands, group_help_by_category
from talaria.commands.cron import CRON
from talaria.commands.display import FOOTER, THEME, VERBOSE, VOICE
from talaria.commands.goal import GOAL, SUBGOAL
from talaria.commands.handoff import HANDOFF, MOVE
from talaria.commands.mcp import MCP
from talaria.commands.model import MODEL, PERSONALITY, PROVIDER, REASONING
from talaria.commands.program import CONFIG, HELP, KEYS, QUIT, RESTART, SETHOME, START
from talaria.commands.sessions import HISTORY, NEW, RESUME, SAVE, SEARCH, SESSIONS, TITLE
from talaria.commands.skills import SKILLS
from talaria.commands.status import DEBUG, STATUS, USAGE, VERSION, WHOAMI
from talaria.commands.turn_control import COMPRESS, PLAN, QUEUE, STEER, STOP

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


def resolve_command(name: str, commands: Sequence[Command] = REGISTRY) -> Command | None:
    """Return the command for a name, an alias or a unique prefix, with or without ``/``; else ``None``."""
    found = find_commands(name, commands)
    return found[0] if len(found) == 1 else None


COMMANDS: Mapping[str, str] = {f"/{command.name}": command.help for command in REGISTRY}
COMMANDS_BY_CATEGORY: Mapping[str, Mapping[str, str]] = group_help_by_category(REGISTRY)
GATEWAY_KNOWN_COMMANDS: frozenset[str] = frozenset(
    name for command in REGISTRY if not command.cli_only for name in command.names
)
