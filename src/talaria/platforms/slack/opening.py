"""Make the Slack adapter from an account."""

import msgspec

from talaria.contracts.platform import Platform, PlatformAccount
from talaria.core.errors import Refused
from talaria.platforms.slack.adapter import Slack
from talaria.platforms.slack.missed import StoreNotes
from talaria.platforms.slack.settings import SlackSettings
from talaria.platforms.slack.threads import StoreShelf


def open_platform(account: PlatformAccount) -> Platform:
    """Return the adapter of the app whose tokens are stored."""
    tokens = {"token": account.secret("SLACK_BOT_TOKEN"), "app_token": account.secret("SLACK_APP_TOKEN")}
    if not all(tokens.values()):
        raise Refused("Slack needs a bot token and an app-level token: `talaria setup chat` asks for them.")
    given = {**account.options, **tokens, "name": account.name}
    try:
        settings = msgspec.convert(given, SlackSettings, strict=False)
    except msgspec.ValidationError as error:
        raise Refused(f"An option of platforms.{account.name} is wrong: {error}.") from error
    shelf, notes = StoreShelf(account.store, account.name), StoreNotes(account.store, account.name)
    platform = Slack(settings, account.commands, shelf, notes)
    account.closing.push_async_callback(platform.close)
    return platform
