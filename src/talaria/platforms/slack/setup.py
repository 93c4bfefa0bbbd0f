"""Setup of Slack: the manifest of an app, to paste into Slack, and the app's two tokens."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from msgspec import Struct

from talaria.contracts.setup import NetworkSetup, NetworkTrial, SetupQuestion
from talaria.platforms.setup_checks import (
    ProbeRequest,
    TokenCheck,
    TokenRejected,
    UnexpectedAnswer,
    decode_answer,
    expect_200,
)

_BOT_TOKEN = "SLACK_BOT_TOKEN"  # noqa: S105 (the name of a secret)
_APP_TOKEN = "SLACK_APP_TOKEN"  # noqa: S105 (the name of a secret)
_API = "https://slack.com/api"
_REFUSALS = {"invalid_auth", "not_authed", "account_inactive", "token_revoked", "token_expired",
             "not_allowed_token_type", "invalid_token", "missing_scope"}  # fmt: skip
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


class _AuthAnswer(Struct):
    ok: bool
    user: str = ""
    team: str = ""
    url: str = ""
    error: str = ""


def _make_request(method: str, secret: str, base: str, trial: NetworkTrial) -> ProbeRequest:
    return ProbeRequest("POST", f"{base}/{method}", {"Authorization": f"Bearer {trial.secrets[secret]}"})


def _read_owner(status: int, body: bytes) -> str:
    expect_200(status)
    answer = decode_answer(body, _AuthAnswer)
    if answer.error in _REFUSALS:
        raise TokenRejected
    if not answer.ok:
        raise UnexpectedAnswer
    return f"{answer.user} in {answer.team}" if answer.user else ""


def _make_check(method: str, secret: str, remedy: str) -> TokenCheck:
    return TokenCheck(
        title="Slack",
        secret=secret,
        address=lambda trial: trial.options.get("base_url", _API),
        request=partial(_make_request, method, secret),
        owner=_read_owner,
        remedy=remedy,
    )


SETUP = NetworkSetup(
    title="Slack",
    questions=(
        SetupQuestion(
            name=_BOT_TOKEN,
            hint="Starts with xoxb-; shown after you install the app of `talaria gateway slack-manifest`.",
            check=_make_check(
                "auth.test",
                _BOT_TOKEN,
                "Copy the one that starts with xoxb- from your app's OAuth & Permissions page.",
            ),
        ),
        SetupQuestion(
            name=_APP_TOKEN,
            hint="Starts with xapp-; an app-level token.",
            # The returned URL is not used: only a valid app-level token gets one.
            check=_make_check(
                "apps.connections.open",
                _APP_TOKEN,
                "It starts with xapp- and needs the scope connections:write. Create one on your app's Basic "
                "Information page.",
            ),
        ),
    ),
    next_step="Invite the app to a channel with /invite, or write to it under Apps.",
)


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
