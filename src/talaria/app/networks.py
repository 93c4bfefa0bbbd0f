"""What subcommands ask about the chat networks of a profile."""

from collections.abc import Mapping

from talaria.app.platforms import enabled_platforms
from talaria.app.subcommands import load
from talaria.contracts.webhooks import WebhookDesk
from talaria.settings.chats import ChatNetwork
from talaria.settings.model import Settings
from talaria.settings.profiles import Profile
from talaria.settings.secrets import Secrets


class ProfileNetworks:
    """The networks of a profile."""

    def __init__(self, settings: Settings, secrets: Secrets, profile: Profile) -> None:
        self._settings = settings
        self._secrets = secrets
        self._profile = profile

    def names(self) -> list[str]:
        """The names of those that are set up."""
        return enabled_platforms(self._settings, self._secrets)

    def webhooks(self) -> WebhookDesk:
        """The routes on which programs post events; raises `Refused` where an option makes no sense."""
        network = self._settings.platforms.get("webhook", ChatNetwork())
        desk: WebhookDesk = load("talaria.app.webhooks").ProfileWebhooks(network, self._secrets, self._profile)
        return desk

    def slack_manifest(self, *, assistant: bool) -> Mapping[str, object]:
        """What a Slack app for this agent is made of."""
        network = self._settings.platforms.get("slack", ChatNetwork())
        registry, using = load("talaria.commands.registry").REGISTRY, load("talaria.commands.using")
        commands = [(command.name, command.help) for command in using.usable(registry, terminal=False)]
        word = network.options.get("command", "talaria").removeprefix("/")
        made: Mapping[str, object] = load("talaria.platforms.slack.manifest").make_manifest(
            commands, command=word, assistant=assistant
        )
        return made
