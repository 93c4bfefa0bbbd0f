"""The manifest of a Slack app: what it may do, what it hears of and its slash commands, to be pasted at Slack."""

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
# Slack has commands of these names itself, and gives them to nobody.
_TAKEN = frozenset({
    "active", "apps", "archive", "away", "call", "collapse", "dm", "dnd", "expand", "feed", "help", "invite", "join",
    "kick", "leave", "list", "me", "msg", "mute", "open", "prefs", "remind", "remove", "rename", "search", "shortcuts",
    "shrug", "star", "status", "topic", "who",
})  # fmt: skip
_MOST_COMMANDS = 50
_LONGEST_NAME = 32
_LONGEST_HELP = 140
_ABOUT = "A personal agent that goes on where you left off."


def make_manifest(
    commands: Sequence[tuple[str, str]], *, name: str = "Talaria", command: str = "talaria", assistant: bool = False
) -> dict[str, Any]:
    """Return the manifest; ``commands`` are names and help of ours, ``command`` the one that does for all of them.

    With ``assistant`` the app is one of those that Slack shows beside everything else, all of it in threads.
    """
    features: dict[str, Any] = {
        "app_home": {
            "home_tab_enabled": False,
            "messages_tab_enabled": True,
            "messages_tab_read_only_enabled": False,
        },
        "bot_user": {"display_name": name, "always_online": True},
        "slash_commands": _commands(commands, command),
    }
    if assistant:
        features["assistant_view"] = {"assistant_description": _ABOUT}
    return {
        "_metadata": {"major_version": 2, "minor_version": 1},
        "display_information": {"name": name, "description": _ABOUT},
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


def _commands(commands: Sequence[tuple[str, str]], one_for_all: str) -> list[dict[str, Any]]:
    first = {
        "command": f"/{one_for_all}",
        "description": "Ask something, or give a command",
        "usage_hint": "[question, or command such as status]",
        "should_escape": True,
    }
    others = [
        {"command": f"/{name}", "description": " ".join(help_.split())[:_LONGEST_HELP], "should_escape": True}
        for name, help_ in commands
        if name not in {*_TAKEN, one_for_all} and len(name) <= _LONGEST_NAME
    ]
    return [first, *others][:_MOST_COMMANDS]
