"""The one table of subcommands, and the one loader that brings in a module by its name."""

from importlib import import_module
from types import ModuleType


class Subcommand:
    """One word after ``talaria``: its summary, a sentence that stands on its own, and its module.

    That module has ``add_arguments(parser)`` and ``run(arguments, services) -> int``.
    """

    # A plain class: importing dataclasses would take longer than everything else `talaria --help` does.
    __slots__ = ("group", "module", "name", "summary")

    def __init__(self, group: str, name: str, summary: str, module: str) -> None:
        self.group = group
        self.name = name
        self.summary = summary
        self.module = module


SUBCOMMANDS = (
    Subcommand("Conversations", "chat", "Chat with the agent, or ask one question", "talaria.cli.chat"),
    Subcommand(
        "Conversations",
        "sessions",
        "List, show, search, export and delete conversations",
        "talaria.cli.sessions",
    ),
    Subcommand(
        "Conversations", "attach", "Watch a conversation running elsewhere, or take it over", "talaria.cli.attach"
    ),
    Subcommand("Conversations", "trace", "Show a timeline of turns with times, tokens and cost", "talaria.cli.trace"),
    Subcommand("Conversations", "ps", "List and stop background processes", "talaria.cli.ps"),
    Subcommand("Conversations", "gateway", "Run the chat gateway and check its status", "talaria.cli.gateway"),
    Subcommand(
        "Conversations", "serve", "Serve the agent over HTTP, compatible with OpenAI's API", "talaria.cli.serve"
    ),
    Subcommand("Conversations", "send", "Send a message to a chat, for example from a script", "talaria.cli.send"),
    Subcommand("Conversations", "channels", "List the chats the agent can post in", "talaria.cli.channels"),
    Subcommand("Conversations", "cron", "Schedule one-off and recurring jobs", "talaria.cli.cron"),
    Subcommand("Set-up", "setup", "Set up a model, chat networks and tools step by step", "talaria.cli.setup"),
    Subcommand("Set-up", "model", "Show and check the configured model, or choose one", "talaria.cli.model"),
    Subcommand("Set-up", "models", "List the available models", "talaria.cli.models"),
    Subcommand("Set-up", "tools", "List the agent's tools and switch them on and off", "talaria.cli.tools"),
    Subcommand("Set-up", "hooks", "List and test event hooks", "talaria.cli.hooks"),
    Subcommand("Set-up", "config", "Show, change and check the settings", "talaria.cli.config"),
    Subcommand("Set-up", "profile", "List, create, choose and delete profiles", "talaria.cli.profile"),
    Subcommand("Set-up", "pairing", "Approve people who write to the agent in chats", "talaria.cli.pairing"),
    Subcommand("Set-up", "api-keys", "Create, list and revoke keys for the HTTP API", "talaria.cli.api_keys"),
    Subcommand("Set-up", "approvals", "List and revoke permanent approvals", "talaria.cli.approvals"),
    Subcommand("Set-up", "trust", "Trust the commands and skills of a project folder", "talaria.cli.trust"),
    Subcommand("Set-up", "webhook", "List and test webhook routes", "talaria.cli.webhook"),
    Subcommand("Set-up", "completion", "Print a shell completion script", "talaria.cli.completion"),
    Subcommand("Care", "doctor", "Check the installation and suggest fixes", "talaria.cli.doctor"),
    Subcommand("Care", "backup", "Back up a profile to a single file", "talaria.cli.backup"),
    Subcommand("Care", "restore", "Restore a profile from a backup", "talaria.cli.restore"),
)


def find_subcommand(name: str) -> Subcommand | None:
    """Return the entry of this name, if there is one."""
    return next((entry for entry in SUBCOMMANDS if entry.name == name), None)


def load(module: str) -> ModuleType:
    """Import a module now that it is needed: what is never asked for is never loaded."""
    return import_module(module)
