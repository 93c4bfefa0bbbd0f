"""Setup section 1: provider, API key and model."""

from collections.abc import Callable, Sequence
from functools import partial

from msgspec import structs

from talaria.cli.commands.login import TerminalSignIn
from talaria.cli.commands.setup.questions import MenuChoice, SkipQuestion
from talaria.cli.commands.setup.wizard_state import SetupContext
from talaria.contracts.setup import ProbeResult, ProviderOffer, TrialAccount
from talaria.core.errors import TalariaError
from talaria.settings.config_writer import (
    EMBEDDED,
    OWN,
    ProviderChange,
    build_key_name,
    is_provider_name,
    use_embedded,
    use_provider,
    write_provider,
)
from talaria.settings.secrets import KNOWN_SECRETS, mask
from talaria.settings.sections.checks import is_web_address

_PROVIDER = (
    "A provider runs the models. Most need a key, which you create on their site; `chatgpt` and "
    "`github-copilot` use your subscription instead; servers on this machine and the built-in "
    "model need neither. Choose `own` for any other server with an "
    "OpenAI-compatible API."
)
_ADDRESS = "The base address of the API, for example http://127.0.0.1:9000/v1."
_OWN_NAME = "A short name for this server in settings and commands: lower-case letters and digits."
_MODEL = "The model to use from now on; `talaria model` changes it at any time. Type a number or a name."
_FAILURE_CHOICES = {
    "another": "enter another key",
    "address": "enter another address",
    "again": "try again",
    "keep": "save it without checking",
    "skip": "save nothing and continue",
}
_AFTER_FAILURE = "Nothing has been saved yet. `keep` saves it although it couldn't be checked."


class ModelSection:
    """Questions about provider, address, key and model; each answer is written once it works."""

    title = "Model"
    purpose = (
        "Which model to use: a subscription, a provider with an API key, a server on this machine, or the built-in one."
    )

    def __init__(self, setup: SetupContext) -> None:
        self._setup = setup
        self._offer: ProviderOffer | None = None
        self._is_own = False
        self._result: ProbeResult | None = None

    def steps(self) -> Sequence[Callable[[], bool]]:
        """Return the questions in order."""
        inner_steps = (self._ask_address, self._ask_name, self._ask_key)
        return (self._ask_provider, *(partial(self._reset_on_skip, step) for step in inner_steps), self._ask_model)

    def _reset_on_skip(self, step: Callable[[], bool]) -> bool:
        """Run a step; if it is skipped, discard the choice of this provider."""
        try:
            return step()
        except SkipQuestion:
            self._offer = None
            raise

    def _ask_provider(self) -> bool:
        self._offer, self._is_own, self._result = None, False, None
        offers = {offer.name: offer for offer in sorted(self._setup.probes.providers(), key=self._rank_offer)}
        choices = [MenuChoice(offer.name, self._describe_offer(offer)) for offer in offers.values()]
        choices += [MenuChoice(EMBEDDED, self._describe_embedded()), MenuChoice(OWN, "another server, by address")]
        picked = self._setup.questions.choose(
            "Provider", choices, default=self._get_default_provider(), explain=_PROVIDER
        )
        if picked == EMBEDDED:
            return self._choose_embedded()
        self._is_own = picked == OWN
        self._offer = ProviderOffer("", "Your server", "") if self._is_own else offers[picked]
        return True

    def _ask_address(self) -> bool:
        if self._offer is None or not self._is_own:
            return False
        self._offer = ProviderOffer(self._offer.name, "Your server", self._ask_for_address(self._offer.base_url))
        return True

    def _ask_for_address(self, known: str) -> str:
        while True:
            address = self._setup.questions.ask("Address", default=known, explain=_ADDRESS).rstrip("/")
            if is_web_address(address):
                return address
            self._setup.print_line("The address must start with http:// or https://.")

    def _ask_name(self) -> bool:
        if self._offer is None or not self._is_own:
            return False
        taken = {offer.name for offer in self._setup.probes.providers() if not offer.own}
        while True:
            name = self._setup.questions.ask(
                "Name for this server", default=self._offer.name or "mine", explain=_OWN_NAME
            )
            if is_provider_name(name) and name not in taken:
                break
            self._setup.print_line(
                f"`{name}` can't be used: choose lower-case letters and digits, and no name from the list above."
            )
        configured = self._setup.writer.load_settings().providers.get(name)
        key_name = (configured.key if configured else "") or build_key_name(name)
        self._offer = ProviderOffer(name, name, self._offer.base_url, key_name)
        return True

    def _ask_key(self) -> bool:
        """Ask for a key if the provider uses one, and test the provider; write what works."""
        offer = self._offer
        if offer is None:
            return False
        if offer.login:
            return self._sign_in(offer)
        typed = self._ask_for_key(offer) if offer.key_name else ""
        while self._setup.checks:
            known = typed or self._read_key(offer)
            self._setup.print_line(f"Checking with {offer.title} …", "dim")
            self._result = self._setup.probes.try_account(self._build_account(offer, known))
            self._setup.print_line(self._result.sentence, "green" if self._result.right else "yellow")
            if self._result.right:
                break
            match self._ask_what_next(offer, self._result):
                case "another":
                    typed = self._ask_for_key(offer)
                case "address":
                    offer = self._offer = structs.replace(offer, base_url=self._ask_for_address(offer.base_url))
                case "keep":
                    break
                case "skip":
                    raise SkipQuestion
        self._write(offer, typed)
        return True

    def _ask_what_next(self, offer: ProviderOffer, result: ProbeResult) -> str:
        """Return the choice of the person after a failed check."""
        left_out = {*(() if offer.key_name else ("another",)), *(() if self._is_own else ("address",))}
        choices = [MenuChoice(name, note) for name, note in _FAILURE_CHOICES.items() if name not in left_out]
        default = "another" if offer.key_name else "again"
        if result.outcome != "refused":
            default = "address" if self._is_own else "again"
        return self._setup.questions.choose("What next?", choices, default=default, explain=_AFTER_FAILURE)

    def _sign_in(self, offer: ProviderOffer) -> bool:
        """Sign in with a subscription, unless that is done already, and test the provider."""
        logins = self._setup.services.models().logins()
        if not any(state.name == offer.login and state.condition == "signed in" for state in logins.status()):
            try:
                state = logins.sign_in(offer.login, TerminalSignIn(self._setup.services))
            except TalariaError as error:
                self._setup.print_line(error.for_owner, "yellow")
                raise SkipQuestion from error
            self._setup.print_line(
                f"Signed in to {state.title}{f' as {state.account}' if state.account else ''}.", "green"
            )
        self._result = self._setup.probes.try_login(offer.name)
        self._setup.print_line(self._result.sentence, "green" if self._result.right else "yellow")
        use_provider(self._setup.writer, offer.name)
        return True

    def _rank_offer(self, offer: ProviderOffer) -> int:
        """Return 0 for what works already, then subscriptions, providers with keys, and servers that don't run."""
        if any(key.name == offer.key_name for key in self._setup.found.keys):
            return 0
        if any(server.provider == offer.name for server in self._setup.found.servers):
            return 0
        return 1 if offer.login else 3 if offer.local else 2

    def _ask_model(self) -> bool:
        if self._offer is None:
            return False
        names = self._result.models if self._result else ()
        now = self._setup.writer.load_settings().model.name
        default = now if now and (now in names or not names) else self._result.good if self._result else ""
        ask = self._setup.questions
        while True:
            if names:
                model = ask.choose_from_many("Model", names, default=default, explain=_MODEL)
            else:
                model = ask.ask("Model, as the provider calls it", default=default, explain=_MODEL)
            self._setup.writer.put("model.name", model)
            self._setup.print_line(f"Saved {self._offer.name}:{model} in {self._setup.services.profile.config_file}.")
            if self._accept_answer(self._offer.name, model):
                return True

    def _accept_answer(self, provider: str, model: str) -> bool:
        """Ask the model for a few tokens; return whether it answers, or is to be used all the same."""
        if not self._setup.checks or self._result is None or not self._result.right:  # kept without a check
            return True
        self._setup.print_line(f"Asking {provider}:{model} …", "dim")
        result = self._setup.probes.try_model(provider, model)
        self._setup.print_line(result.sentence, "green" if result.right else "yellow")
        return result.right or not self._setup.questions.confirm(
            "Choose another model?", default=True, explain="It is saved, but didn't answer just now."
        )

    def _choose_embedded(self) -> bool:
        if self._setup.found.embedded == "missing":
            question, why = "Install it now (130 MB)?", "It is installed into the Python environment of Talaria."
            if not self._setup.questions.confirm(question, default=True, explain=why):
                raise SkipQuestion
            try:
                self._setup.print_line(self._setup.services.models().install_embedded(self._setup.print_line))
            except TalariaError as error:
                self._setup.print_line(str(error), "yellow")
                return True
        use_embedded(self._setup.writer)
        self._setup.print_line("The built-in model works. It is for simple chat only and can't use tools.")
        return True

    def _ask_for_key(self, offer: ProviderOffer) -> str:
        known = self._read_key(offer)
        hint = next((secret.hint for secret in KNOWN_SECRETS if secret.name == offer.key_name), "")
        explain = f"{hint} It is stored in {self._setup.services.profile.secrets_file}, readable only by you.".strip()
        while True:
            default = f"keep {mask(known)}" if known else "no key" if self._is_own else ""
            typed = self._setup.questions.ask_hidden(f"Key {offer.key_name}", default=default, explain=explain)
            if typed or known or self._is_own:
                return typed
            self._setup.print_line(f"{offer.title} needs a key. Type `skip` to continue without one.")

    def _read_key(self, offer: ProviderOffer) -> str:
        return (self._setup.writer.read_secrets().get(offer.key_name) or "") if offer.key_name else ""

    def _build_account(self, offer: ProviderOffer, key: str) -> TrialAccount:
        base_url = offer.base_url if self._is_own else ""
        return TrialAccount(offer.name, base_url, offer.key_name if key or not self._is_own else "", key)

    def _write(self, offer: ProviderOffer, typed: str) -> None:
        base_url = offer.base_url if self._is_own else ""
        change = ProviderChange(name=offer.name, key_name=offer.key_name, key=typed, base_url=base_url)
        write_provider(self._setup.writer, change)
        if typed:
            self._setup.print_line(
                f"Saved {offer.key_name} {mask(typed)} in {self._setup.services.profile.secrets_file}."
            )
        use_provider(self._setup.writer, offer.name)

    def _get_default_provider(self) -> str:
        chosen = self._setup.found.chosen
        return self._setup.writer.load_settings().model.provider or (chosen.provider if chosen else "")

    def _describe_offer(self, offer: ProviderOffer) -> str:
        key = any(key.name == offer.key_name for key in self._setup.found.keys)
        server = next((one for one in self._setup.found.servers if one.provider == offer.name), None)
        if server:
            return f"{offer.title}, running at {offer.base_url}"
        if offer.login:
            return f"{offer.title} subscription, without a key"
        if offer.local:
            return f"{offer.title}, not running at {offer.base_url}"
        return f"{offer.title}, {offer.key_name} is set" if key else offer.title

    def _describe_embedded(self) -> str:
        state = {"installed": "installed", "missing": "not installed, 130 MB", "off": "turned off"}
        return f"small model built into Talaria, {state[self._setup.found.embedded]}; chat only"
