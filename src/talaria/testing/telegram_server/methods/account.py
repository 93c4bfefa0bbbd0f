"""The bot itself: identity, updates, command menu."""

import re

import msgspec

from talaria.testing.telegram_server.checks import Parameters
from talaria.testing.telegram_server.files import Upload
from talaria.testing.telegram_server.methods.base import Method
from talaria.testing.telegram_server.parts import BotCommand, BotCommandScope, Wire
from talaria.testing.telegram_server.refusals import bad_request, conflict
from talaria.testing.telegram_server.world import World

_MOST_COMMANDS = 100
_LONGEST_POLL = 50


class GetMe(Parameters, frozen=True, kw_only=True):
    """No parameters."""


class GetUpdates(Parameters, frozen=True, kw_only=True):
    """Parameters of a poll; ``timeout`` is in seconds."""

    offset: int = 0
    limit: int = 100
    timeout: int = 0
    allowed_updates: list[str] | None = None


class SetWebhook(Parameters, frozen=True, kw_only=True):
    """The target of updates."""

    url: str = ""
    certificate: Upload | str | None = None
    ip_address: str | None = None
    max_connections: int = 40
    allowed_updates: list[str] | None = None
    drop_pending_updates: bool = False
    secret_token: str = ""


class DeleteWebhook(Parameters, frozen=True, kw_only=True):
    """Parameters: drop pending updates or not."""

    drop_pending_updates: bool = False


class SetMyCommands(Parameters, frozen=True, kw_only=True):
    """A menu."""

    commands: list[BotCommand]
    scope: BotCommandScope | None = None
    language_code: str = ""


class GetMyCommands(Parameters, frozen=True, kw_only=True):
    """Which menu."""

    scope: BotCommandScope | None = None
    language_code: str = ""


def get_me(world: World, _: GetMe) -> Wire:
    """Return the bot."""
    return world.office.me()


async def get_updates(world: World, parameters: GetUpdates) -> list[Wire]:
    """Wait for updates; an offset confirms those before it."""
    updates = world.office.updates
    if world.webhook.url:
        raise conflict(
            "can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook first"
        )
    updates.confirm(parameters.offset)
    updates.allow(parameters.allowed_updates)
    limit = parameters.limit if 1 <= parameters.limit <= 100 else 100
    found = await updates.poll(limit=limit, timeout=min(max(parameters.timeout, 0), _LONGEST_POLL))
    return [update.wire() for update in found]


def set_webhook(world: World, parameters: SetWebhook) -> bool:
    """Deliver updates to an address; an empty one ends that."""
    if parameters.url and not re.match(r"https?://[^/\s]+", parameters.url):
        raise bad_request("bad webhook: An HTTPS URL must be provided for webhook")
    if parameters.secret_token and not re.fullmatch(r"[A-Za-z0-9_-]{1,256}", parameters.secret_token):
        raise bad_request("secret token contains unallowed characters")
    if not 1 <= parameters.max_connections <= 100:
        raise bad_request("max_connections must be between 1 and 100")
    updates = world.office.updates
    if parameters.drop_pending_updates:
        updates.forget()
    updates.allow(parameters.allowed_updates)
    world.webhook.point(parameters.url, parameters.secret_token, parameters.max_connections)
    return True


def delete_webhook(world: World, parameters: DeleteWebhook) -> bool:
    """Let updates wait until they are asked for."""
    return set_webhook(world, SetWebhook(drop_pending_updates=parameters.drop_pending_updates))


def get_webhook_info(world: World, _: GetMe) -> Wire:
    """Return the state of the webhook."""
    return world.webhook.wire()


def set_my_commands(world: World, parameters: SetMyCommands) -> bool:
    """Store a menu of commands."""
    if len(parameters.commands) > _MOST_COMMANDS:
        raise bad_request("BOT_COMMANDS_TOO_MUCH")
    for one in parameters.commands:
        if not re.fullmatch(r"[a-z0-9_]{1,32}", one.command.removeprefix("/")):
            raise bad_request("BOT_COMMAND_INVALID")
        if not 1 <= len(one.description.strip()) <= 256:
            raise bad_request("BOT_COMMAND_DESCRIPTION_INVALID")
    world.menus[_menu(parameters)] = [
        BotCommand(command=one.command.removeprefix("/"), description=one.description.strip())
        for one in parameters.commands
    ]
    world.office.changes.happened()
    return True


def get_my_commands(world: World, parameters: GetMyCommands) -> list[Wire]:
    """Return a menu of commands."""
    return [msgspec.to_builtins(one) for one in world.menus.get(_menu(parameters), [])]


def delete_my_commands(world: World, parameters: GetMyCommands) -> bool:
    """Forget a menu of commands."""
    world.menus.pop(_menu(parameters), None)
    return True


def _menu(parameters: SetMyCommands | GetMyCommands) -> tuple[object, str]:
    scope = parameters.scope or BotCommandScope(type="default")
    return (scope.type, scope.chat_id, scope.user_id), parameters.language_code


ACCOUNT = [
    Method("getMe", GetMe, get_me),
    Method("getUpdates", GetUpdates, get_updates),
    Method("setWebhook", SetWebhook, set_webhook),
    Method("deleteWebhook", DeleteWebhook, delete_webhook),
    Method("getWebhookInfo", GetMe, get_webhook_info),
    Method("setMyCommands", SetMyCommands, set_my_commands),
    Method("getMyCommands", GetMyCommands, get_my_commands),
    Method("deleteMyCommands", GetMyCommands, delete_my_commands),
]
