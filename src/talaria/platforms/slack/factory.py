"""Create the Slack adapter from an account."""

import msgspec

from talaria.contracts.platform import Platform, PlatformAccount
from talaria.core.errors import Refused
from talaria.platforms.slack.adapter import Slack
from talaria.platforms.slack.backfill import DurablePositionStore
from talaria.platforms.slack.settings import SlackSettings
from talaria.platforms.slack.threads import DurableThreadStore


def open_platform(account: PlatformAccount) -> Platform:
    """Return the adapter for the stored tokens."""
    tokens = {"token": account.secret("SLACK_BOT_TOKEN"), "app_token": account.secret("SLACK_APP_TOKEN")}
    if not all(tokens.values()):
        raise Refused("Slack needs a bot token and an app-level token. Run `talaria setup chat` to enter them.")
    given = {**account.options, **tokens, "name": account.name}
    try:
        settings = msgspec.convert(given, SlackSettings, strict=False)
    except msgspec.ValidationError as error:
        raise Refused(f"Invalid option in platforms.{account.name}: {error}.") from error
    state_store, positions = (
        DurableThreadStore(account.store, account.name),
        DurablePositionStore(account.store, account.name),
    )
    platform = Slack(settings, account.commands, state_store, positions)
    account.closing.push_async_callback(platform.close)
    return platform
