"""Setup section 2: tokens of chat networks."""

from collections.abc import Callable, Sequence
from functools import partial

from msgspec import Struct

from talaria.cli.commands.setup.questions import MenuChoice
from talaria.cli.commands.setup.wizard_state import SetupContext, ask_for_secret
from talaria.contracts.setup import NetworkName, ProbeResult
from talaria.settings.secrets import mask
from talaria.settings.sections.checks import is_web_address

HOMESERVER = "MATRIX_HOMESERVER"

_WHICH = "Give numbers or names separated by commas, or `none`. Tokens of networks that you leave out are kept."
_HOMESERVER = "Address of the bot account's server, for example https://matrix.org."


class NetworkToken(Struct, frozen=True):
    """Token of a network: the secret that holds it, and the service that verifies it."""

    network: str
    title: str
    secret: str
    asked: NetworkName


TOKENS = (
    NetworkToken("telegram", "Telegram", "TELEGRAM_BOT_TOKEN", "telegram"),
    NetworkToken("discord", "Discord", "DISCORD_BOT_TOKEN", "discord"),
    NetworkToken("slack", "Slack", "SLACK_BOT_TOKEN", "slack"),
    NetworkToken("slack", "Slack", "SLACK_APP_TOKEN", "slack_app"),
    NetworkToken("matrix", "Matrix", "MATRIX_ACCESS_TOKEN", "matrix"),
)
NETWORKS = {token.network: token.title for token in TOKENS}


class ChatSection:
    """Questions about networks and their tokens; a token is written once its network accepts it."""

    title = "Chat networks"
    purpose = "Where people can reach the agent. The gateway uses these tokens when it runs."

    def __init__(self, setup: SetupContext) -> None:
        self._setup = setup
        self._networks: list[str] = []

    def steps(self) -> Sequence[Callable[[], bool]]:
        """Return the questions in order."""
        tokens = [partial(self._ask_token, token) for token in TOKENS]
        return (self._ask_which, *tokens[:-1], self._ask_homeserver, tokens[-1])

    def _ask_which(self) -> bool:
        self._networks = []
        secrets = self._setup.writer.secrets()
        choices = [
            MenuChoice(name, self._describe_tokens([token.secret for token in TOKENS if token.network == name]))
            for name in NETWORKS
        ]
        ready = [name for name in NETWORKS if any(secrets.get(one.secret) for one in TOKENS if one.network == name)]
        self._networks = self._setup.questions.choose_some("Networks", choices, default=ready, explain=_WHICH)
        return True

    def _ask_homeserver(self) -> bool:
        if "matrix" not in self._networks:
            return False
        known = self._setup.writer.secrets().get(HOMESERVER) or ""
        while True:
            address = self._setup.questions.ask("Matrix server", default=known, explain=_HOMESERVER).rstrip("/")
            if is_web_address(address):
                break
            self._setup.say("The address must start with http:// or https://.")
        if address != known:
            self._setup.writer.keep_secret(HOMESERVER, address)
        return True

    def _ask_token(self, token: NetworkToken) -> bool:
        if token.network not in self._networks:
            return False
        if token.network == "matrix" and not self._setup.writer.secrets().get(HOMESERVER):
            self._setup.say("Skipping the Matrix token, because it needs a server.")
            return False
        check = partial(self._check_token, token)
        ask_for_secret(self._setup, token.secret, token.title, check, kind="token")
        return True

    def _check_token(self, token: NetworkToken, value: str) -> ProbeResult:
        return self._setup.probes.try_token(token.asked, value, self._base_url(token.network))

    def _base_url(self, network: str) -> str:
        given = self._setup.network_urls.get(network, "")
        return given or ((self._setup.writer.secrets().get(HOMESERVER) or "") if network == "matrix" else "")

    def _describe_tokens(self, names: list[str]) -> str:
        secrets = self._setup.writer.secrets()
        known = [f"{name} {mask(value)}" for name in names if (value := secrets.get(name))]
        return ", ".join(known) or "no token yet"
