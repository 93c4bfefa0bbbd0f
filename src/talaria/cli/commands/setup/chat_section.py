"""Setup section 2: tokens of chat networks."""

from collections.abc import Callable, Sequence
from functools import partial

from msgspec import Struct

from talaria.cli.commands.setup.questions import MenuChoice, SkipQuestion
from talaria.cli.commands.setup.wizard_state import SetupContext
from talaria.contracts.setup import NetworkName
from talaria.settings.secrets import KNOWN_SECRETS, mask
from talaria.settings.sections.checks import is_web_address

HOMESERVER = "MATRIX_HOMESERVER"

_WHICH = "Give numbers or names separated by commas, or `none`. Tokens of networks that you leave out are kept."
_HOMESERVER = "Address of the bot account's server, for example https://matrix.org."
_FAILURE_CHOICES = (
    MenuChoice("another", "enter another token"),
    MenuChoice("again", "try again"),
    MenuChoice("keep", "save it without checking"),
    MenuChoice("skip", "save nothing and continue"),
)
_AFTER_FAILURE = "The token hasn't been saved yet. `keep` saves it although it couldn't be checked."


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
        typed = self._ask_for_token(token)
        while self._setup.checks:
            known = typed or self._setup.writer.secrets().get(token.secret) or ""
            self._setup.say(f"Checking with {token.title} …", "dim")
            result = self._setup.probes.try_token(token.asked, known, self._base_url(token.network))
            self._setup.say(result.sentence, "green" if result.right else "yellow")
            if result.right:
                break
            default = "another" if result.outcome == "refused" else "again"
            match self._setup.questions.choose("What next?", _FAILURE_CHOICES, default=default, explain=_AFTER_FAILURE):
                case "another":
                    typed = self._ask_for_token(token)
                case "keep":
                    break
                case "skip":
                    raise SkipQuestion
        if typed:
            self._setup.writer.keep_secret(token.secret, typed)
            file = self._setup.services.profile.secrets_file
            self._setup.say(f"Saved {token.secret} {mask(typed)} in {file}.")
        return True

    def _ask_for_token(self, token: NetworkToken) -> str:
        """Return a new token, or an empty string to keep the current one."""
        known = self._setup.writer.secrets().get(token.secret) or ""
        hint = next(secret.hint for secret in KNOWN_SECRETS if secret.name == token.secret)
        while True:
            default = f"keep {mask(known)}" if known else ""
            typed = self._setup.questions.ask_hidden(token.secret, default=default, explain=hint)
            if typed or known:
                return typed
            self._setup.say("Type or paste the token, or `skip` to continue without one.")

    def _base_url(self, network: str) -> str:
        given = self._setup.network_urls.get(network, "")
        return given or ((self._setup.writer.secrets().get(HOMESERVER) or "") if network == "matrix" else "")

    def _describe_tokens(self, names: list[str]) -> str:
        secrets = self._setup.writer.secrets()
        known = [f"{name} {mask(value)}" for name in names if (value := secrets.get(name))]
        return ", ".join(known) or "no token yet"
