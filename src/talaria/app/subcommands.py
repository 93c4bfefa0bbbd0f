"""The one table of subcommands, and the one loader that brings in a module by its name."""

from importlib import import_module
from types import ModuleType


class Subcommand:
    """One word after ``talaria``: what the overview says of it, and the module that does it.

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
    Subcommand("Conversations", "chat", "Talk to the agent, once or line by line", "talaria.cli.chat"),
    Subcommand(
        "Conversations", "sessions", "List, show, search, rename, export and delete them", "talaria.cli.sessions"
    ),
    Subcommand("Conversations", "attach", "Watch one that goes on elsewhere, or take it over", "talaria.cli.attach"),
    Subcommand("Conversations", "trace", "Show what turns did, when, and what that took", "talaria.cli.trace"),
    Subcommand("Conversations", "ps", "List what runs in their background, and end it", "talaria.cli.ps"),
    Subcommand("Conversations", "gateway", "Serve chat networks, and see how that goes", "talaria.cli.gateway"),
    Subcommand("Conversations", "serve", "Serve the agent over HTTP, as OpenAI's API", "talaria.cli.serve"),
    Subcommand("Conversations", "send", "Say something in a chat, from a script", "talaria.cli.send"),
    Subcommand("Conversations", "channels", "List the chats in which the agent can speak", "talaria.cli.channels"),
    Subcommand("Conversations", "cron", "Have things done later, or again and again", "talaria.cli.cron"),
    Subcommand("Set-up", "setup", "Be guided through model, chat networks and tools", "talaria.cli.setup"),
    Subcommand("Set-up", "model", "Show which model answers and why, or choose one", "talaria.cli.model"),
    Subcommand("Set-up", "models", "List the models that can be used now", "talaria.cli.models"),
    Subcommand("Set-up", "tools", "Show what the agent can do, and switch it on and off", "talaria.cli.tools"),
    Subcommand("Set-up", "hooks", "List and try what is done when something happens", "talaria.cli.hooks"),
    Subcommand("Set-up", "config", "Show, change and check the settings", "talaria.cli.config"),
    Subcommand("Set-up", "profile", "List, create, choose and delete profiles", "talaria.cli.profile"),
    Subcommand("Set-up", "pairing", "Let people in who write to the agent in chats", "talaria.cli.pairing"),
    Subcommand("Set-up", "api-keys", "Give out keys for the HTTP API, and take them back", "talaria.cli.api_keys"),
    Subcommand("Set-up", "approvals", "List what was allowed for good, and take it back", "talaria.cli.approvals"),
    Subcommand("Set-up", "webhook", "List the routes of webhooks, and try them out", "talaria.cli.webhook"),
    Subcommand("Set-up", "completion", "Print what makes the Tab key work in your shell", "talaria.cli.completion"),
    Subcommand("Care", "doctor", "Check that all is well, and say how to repair what is not", "talaria.cli.doctor"),
    Subcommand("Care", "backup", "Write everything of a profile into one file", "talaria.cli.backup"),
    Subcommand("Care", "restore", "Bring a profile back from such a file", "talaria.cli.restore"),
)


def find_subcommand(name: str) -> Subcommand | None:
    """Return the entry of this name, if there is one."""
    return next((entry for entry in SUBCOMMANDS if entry.name == name), None)


def load(module: str) -> ModuleType:
    """Import a module now that it is needed: what is never asked for is never loaded."""
    return import_module(module)
