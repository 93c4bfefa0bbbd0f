"""The manifest of a Slack app: scopes, events and slash commands, to paste into Slack."""

from collections.abc import Sequence
from typing import Any

_SCOPES = (
    "app_mentions:read", "channels:history", "channels:read", "chat:write", "commands", "files:read", "files:write",
    "groups:history", "groups:read", "im:history", "im:read", "im:write", "mpim:history", "mpim:read", "reactions:read",
    "reactions:write", "users:read",
)  # fmt: skip
_EVENTS = ("app_mention", "message.channels", "message.groups", "message.im", "message.mpim", "reaction_added")
_ASSISTANT_SCOPES = ("assistant:write",)
_ASSISTANT_EVENTS = ("assistant_thread_started",)
# Slack reserves commands with these names.
_RESERVED_NAMES = frozenset({
    "active", "apps", "archive", "away", "call", "collapse", "dm", "dnd", "expand", "feed", "help", "invite", "join",
    "kick", "leave", "list", "me", "msg", "mute", "open", "prefs", "remind", "remove", "rename", "search", "shortcuts",
    "shrug", "star", "status", "topic", "who",
})  # fmt: skip
_MOST_COMMANDS = 50
_NAME_LIMIT = 32
_HELP_LIMIT = 140
_DESCRIPTION = "A personal agent that continues where you left off."


def make_manifest(
    commands: Sequence[tuple[str, str]], *, name: str = "Talaria", command: str = "talaria", assistant: bool = False
) -> dict[str, Any]:
    """Return the manifest; ``commands`` are our names and help texts, ``command`` the one for all of them.

    With ``assistant`` the app appears in Slack's assistant view, always in threads.
    """
    features: dict[str, Any] = {
        "app_home": {
            "home_tab_enabled": False,
            "messages_tab_enabled": True,
            "messages_tab_read_only_enabled": False,
        },
        "bot_user": {"display_name": name, "always_online": True},
        "slash_commands": _list_commands(commands, command),
    }
    if assistant:
        features["assistant_view"] = {"assistant_description": _DESCRIPTION}
    return {
        "_metadata": {"major_version": 2, "minor_version": 1},
        "display_information": {"name": name, "description": _DESCRIPTION},
        "features": features,
        "oauth_config": {"scopes": {"bot": sorted(_SCOPES + _ASSISTANT_SCOPES * assistant)}},
        "settings": {
            "event_subscriptions": {"bot_events": sorted(_EVENTS + _ASSISTANT_EVENTS * assistant)},
            "interactivity": {"is_enabled": True},
            "org_deploy_enabled": False,
            "socket_mode_enabled": True,
            "token_rotation_enabled": False,
        },
    }


def _list_commands(commands: Sequence[tuple[str, str]], main_command: str) -> list[dict[str, Any]]:
    first = {
        "command": f"/{main_command}",
        "description": "Ask a question or run a command",
        "usage_hint": "[question, or a command like status]",
        "should_escape": True,
    }
    others = [
        {"command": f"/{name}", "description": " ".join(help_.split())[:_HELP_LIMIT], "should_escape": True}
        for name, help_ in commands
        if name not in {*_RESERVED_NAMES, main_command} and len(name) <= _NAME_LIMIT
    ]
    return [first, *others][:_MOST_COMMANDS]
