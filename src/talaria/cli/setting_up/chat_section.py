"""The second section of the set-up: tokens of chat networks."""

from collections.abc import Callable, Sequence
from functools import partial

from msgspec import Struct

from talaria.cli.setting_up.desk import NetworkName
from talaria.cli.setting_up.questions import Choice, Skip
from talaria.cli.setting_up.session import Guided
from talaria.settings.checks import is_web_address
from talaria.settings.secrets import KNOWN_SECRETS, mask

HOMESERVER = "MATRIX_HOMESERVER"

_WHICH = "Give numbers or names with commas between them, or `none`. Tokens of networks that you leave out stay."
_HOMESERVER = "The address of the server where the account of the bot lives, such as https://matrix.org."
_FAILED = (
    Choice("another", "type another token"),
    Choice("again", "try the same once more"),
    Choice("keep", "keep it as it is, unchecked"),
    Choice("skip", "write nothing and go on"),
)
_AFTER_FAILURE = "The token has not been written yet. `keep` writes it although it could not be checked."


class Token(Struct, frozen=True):
    """One token: the secret that holds it, and who is asked whether it is right."""

    network: str
    title: str
    secret: str
    asked: NetworkName


TOKENS = (
    Token("telegram", "Telegram", "TELEGRAM_BOT_TOKEN", "telegram"),
    Token("discord", "Discord", "DISCORD_BOT_TOKEN", "discord"),
    Token("slack", "Slack", "SLACK_BOT_TOKEN", "slack"),
    Token("slack", "Slack", "SLACK_APP_TOKEN", "slack_app"),
    Token("matrix", "Matrix", "MATRIX_ACCESS_TOKEN", "matrix"),
)
NETWORKS = {token.network: token.title for token in TOKENS}


class ChatSection:
    """Asks which networks, then for the tokens of each; a token is written once its network knows it."""

    title = "Chat networks"
    purpose = "Where people can reach the agent. The gateway uses these tokens once it runs; until then they wait."

    def __init__(self, guided: Guided) -> None:
        self._guided = guided
        self._wanted: list[str] = []

    def steps(self) -> Sequence[Callable[[], bool]]:
        """Return the questions in their order."""
        tokens = [partial(self._ask_token, token) for token in TOKENS]
        return (self._ask_which, *tokens[:-1], self._ask_homeserver, tokens[-1])

    def _ask_which(self) -> bool:
        self._wanted = []
        secrets = self._guided.writer.secrets()
        choices = [
            Choice(name, self._remark([token.secret for token in TOKENS if token.network == name])) for name in NETWORKS
        ]
        ready = [name for name in NETWORKS if any(secrets.get(one.secret) for one in TOKENS if one.network == name)]
        self._wanted = self._guided.questions.choose_some("Networks", choices, default=ready, explain=_WHICH)
        return True

    def _ask_homeserver(self) -> bool:
        if "matrix" not in self._wanted:
            return False
        known = self._guided.writer.secrets().get(HOMESERVER) or ""
        while True:
            address = self._guided.questions.ask("Matrix server", default=known, explain=_HOMESERVER).rstrip("/")
            if is_web_address(address):
                break
            self._guided.say("An address begins with http:// or https://.")
        if address != known:
            self._guided.writer.keep_secret(HOMESERVER, address)
        return True

    def _ask_token(self, token: Token) -> bool:
        if token.network not in self._wanted:
            return False
        if token.network == "matrix" and not self._guided.writer.secrets().get(HOMESERVER):
            self._guided.say("Without its server, a token of Matrix is of no use; it is not asked for.")
            return False
        typed = self._typed(token)
        while self._guided.checks:
            known = typed or self._guided.writer.secrets().get(token.secret) or ""
            self._guided.say(f"Asking {token.title} …", "dim")
            tried = self._guided.desk.try_token(token.asked, known, self._base_url(token.network))
            self._guided.say(tried.sentence, "green" if tried.right else "yellow")
            if tried.right:
                break
            default = "another" if tried.outcome == "refused" else "again"
            match self._guided.questions.choose("What now", _FAILED, default=default, explain=_AFTER_FAILURE):
                case "another":
                    typed = self._typed(token)
                case "keep":
                    break
                case "skip":
                    raise Skip
        if typed:
            self._guided.writer.keep_secret(token.secret, typed)
            file = self._guided.services.profile.secrets_file
            self._guided.say(f"{token.secret} {mask(typed)} is written to {file}.")
        return True

    def _typed(self, token: Token) -> str:
        """Return a new token, or nothing where the one that is there shall stay."""
        known = self._guided.writer.secrets().get(token.secret) or ""
        hint = next(secret.hint for secret in KNOWN_SECRETS if secret.name == token.secret)
        while True:
            default = f"keep {mask(known)}" if known else ""
            typed = self._guided.questions.hidden(token.secret, default=default, explain=hint)
            if typed or known:
                return typed
            self._guided.say("Type or paste the token, or `skip` to continue without one.")

    def _base_url(self, network: str) -> str:
        given = self._guided.network_urls.get(network, "")
        return given or ((self._guided.writer.secrets().get(HOMESERVER) or "") if network == "matrix" else "")

    def _remark(self, names: list[str]) -> str:
        secrets = self._guided.writer.secrets()
        known = [f"{name} {mask(value)}" for name in names if (value := secrets.get(name))]
        return ", ".join(known) or "no token yet"
