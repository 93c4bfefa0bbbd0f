"""Table of subcommands, which is all that `talaria --help` needs, and the texts of help and version."""

from itertools import groupby

from talaria import __version__

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


class Subcommand:
    """A subcommand of ``talaria``: its group, name, summary and module.

    The summary is an imperative phrase without a full stop. The module has ``add_arguments(parser)`` and
    ``run(arguments, services) -> int``; in a module of several subcommands, the class named after the colon has them.
    """

    # A plain class, because importing dataclasses would take longer than everything else `talaria --help` does.
    __slots__ = ("group", "module", "name", "summary")

    def __init__(self, group: str, name: str, summary: str, module: str) -> None:
        self.group = group
        self.name = name
        self.summary = summary
        self.module = module


SUBCOMMANDS = (
    Subcommand(
        "Conversations", "chat", "Chat with the agent, or ask one question", "talaria.cli.commands.chat:ChatCommand"
    ),
    Subcommand(
        "Conversations",
        "sessions",
        "List, show, search, export and delete conversations",
        "talaria.cli.commands.sessions.command",
    ),
    Subcommand(
        "Conversations",
        "attach",
        "Watch a conversation running elsewhere, or take it over",
        "talaria.cli.commands.chat:AttachCommand",
    ),
    Subcommand(
        "Conversations",
        "trace",
        "Show a timeline of turns with times, tokens and cost",
        "talaria.cli.commands.trace.command:TraceCommand",
    ),
    Subcommand(
        "Conversations",
        "usage",
        "Show tokens and cost of the last days",
        "talaria.cli.commands.trace.command:UsageCommand",
    ),
    Subcommand(
        "Conversations",
        "checkpoints",
        "Show and undo the agent's changes to files",
        "talaria.cli.commands.checkpoints",
    ),
    Subcommand("Conversations", "ps", "List and stop background processes", "talaria.cli.commands.ps"),
    Subcommand(
        "Conversations", "gateway", "Run the chat gateway and check its status", "talaria.cli.commands.gateway.command"
    ),
    Subcommand(
        "Conversations",
        "serve",
        "Serve the agent over HTTP, compatible with OpenAI's API",
        "talaria.cli.commands.web:ServeCommand",
    ),
    Subcommand(
        "Conversations",
        "web",
        "Open the web app, and sign in phones and other browsers",
        "talaria.cli.commands.web:WebCommand",
    ),
    Subcommand(
        "Conversations",
        "send",
        "Send a message to a chat, for example from a script",
        "talaria.cli.commands.send",
    ),
    Subcommand(
        "Conversations",
        "channels",
        "List the chats the agent can post in",
        "talaria.cli.commands.routes:ChannelsCommand",
    ),
    Subcommand("Conversations", "cron", "Schedule one-off and recurring jobs", "talaria.cli.commands.cron"),
    Subcommand(
        "Setup", "setup", "Set up a model, chat networks and tools step by step", "talaria.cli.commands.setup.command"
    ),
    Subcommand("Setup", "import", "Import from Hermes, OpenClaw, Claude Code or Codex", "talaria.cli.commands.imports"),
    Subcommand(
        "Setup", "login", "Sign in with a subscription instead of an API key", "talaria.cli.commands.login:LoginCommand"
    ),
    Subcommand("Setup", "logout", "Sign out and delete the stored tokens", "talaria.cli.commands.login:LogoutCommand"),
    Subcommand(
        "Setup", "auth", "Show which subscriptions you are signed in with", "talaria.cli.commands.login:AuthCommand"
    ),
    Subcommand(
        "Setup",
        "model",
        "Show and check the configured model, or choose one",
        "talaria.cli.commands.model:ModelCommand",
    ),
    Subcommand("Setup", "models", "List the available models", "talaria.cli.commands.model:ModelsCommand"),
    Subcommand("Setup", "tools", "List the agent's tools and switch them on and off", "talaria.cli.commands.tools"),
    Subcommand("Setup", "memory", "List, search and change what the agent remembers", "talaria.cli.commands.memory"),
    Subcommand("Setup", "mcp", "Add, test and sign in to MCP servers, or serve as one", "talaria.cli.commands.mcp"),
    Subcommand("Setup", "skills", "List, install, check, enable and disable skills", "talaria.cli.commands.skills"),
    Subcommand("Setup", "hooks", "List and test event hooks", "talaria.cli.commands.hooks:HooksCommand"),
    Subcommand("Setup", "config", "Show, change and check the settings", "talaria.cli.commands.config"),
    Subcommand(
        "Setup", "profile", "List, create, choose and delete profiles", "talaria.cli.commands.profile:ProfileCommand"
    ),
    Subcommand(
        "Setup",
        "pairing",
        "Approve people who write to the agent in chats",
        "talaria.cli.commands.access:PairingCommand",
    ),
    Subcommand(
        "Setup",
        "api-keys",
        "Create, list and revoke keys for the HTTP API",
        "talaria.cli.commands.access:ApiKeysCommand",
    ),
    Subcommand("Setup", "approvals", "List, revoke and export approvals", "talaria.cli.commands.approvals"),
    Subcommand(
        "Setup",
        "trust",
        "Trust the commands and skills of a project folder",
        "talaria.cli.commands.profile:TrustCommand",
    ),
    Subcommand(
        "Setup", "routes", "List, add and test which persona answers where", "talaria.cli.commands.routes:RoutesCommand"
    ),
    Subcommand("Setup", "webhook", "List and test webhook routes", "talaria.cli.commands.hooks:WebhookCommand"),
    Subcommand("Setup", "completion", "Print a shell completion script", "talaria.cli.commands.completion"),
    Subcommand(
        "Maintenance", "doctor", "Check the installation and suggest fixes", "talaria.cli.commands.doctor.command"
    ),
    Subcommand(
        "Maintenance", "backup", "Back up a profile to a single file", "talaria.cli.commands.backup:BackupCommand"
    ),
    Subcommand(
        "Maintenance", "restore", "Restore a profile from a backup", "talaria.cli.commands.backup:RestoreCommand"
    ),
    Subcommand(
        "Maintenance",
        "update",
        "Install another version, or return to the one before",
        "talaria.cli.commands.update.command:UpdateCommand",
    ),
    Subcommand("Maintenance", "dev", "Start a package that extends Talaria", "talaria.cli.commands.dev"),
    Subcommand(
        "Maintenance",
        "uninstall",
        "Remove Talaria from this computer",
        "talaria.cli.commands.update.command:UninstallCommand",
    ),
)


def find_subcommand(name: str) -> Subcommand | None:
    """Return the subcommand with this name, if there is one."""
    return next((entry for entry in SUBCOMMANDS if entry.name == name), None)


def format_version() -> str:
    """Return the output of ``--version``."""
    return f"talaria {__version__}"


def format_overview() -> str:
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
