"""Setup section 2: chat networks, each with the questions that its adapter declares."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from talaria.cli.commands.setup.questions import MenuChoice
from talaria.cli.commands.setup.wizard_state import SetupContext, ask_setup_question
from talaria.contracts.setup import NetworkSetup, NetworkTrial, ProbeResult, SetupQuestion
from talaria.settings.config_writer import ConfigWriter
from talaria.settings.secrets import mask

_WHICH = "Give numbers or names separated by commas, or `none`. Networks that you leave out stay as they are."


class ChatSection:
    """Questions about networks; an answer is written once its network accepts it."""

    title = "Chat networks"
    purpose = "Where people can reach the agent. The gateway uses these answers when it runs."

    def __init__(self, setup: SetupContext) -> None:
        self._setup = setup
        self._networks = setup.services.networks().setups()
        self._chosen: list[str] = []

    def steps(self) -> Sequence[Callable[[], bool]]:
        """Return the questions in order."""
        steps: list[Callable[[], bool]] = [self._ask_which]
        for name, network in self._networks.items():
            steps += [partial(self._ask, name, question) for question in network.questions]
            steps.append(partial(self._finish_network, name))
        return steps

    def _ask_which(self) -> bool:
        self._chosen = []
        choices = [MenuChoice(name, self._describe(name)) for name in self._networks]
        ready = [name for name in self._networks if self._known(name)]
        self._chosen = self._setup.questions.choose_some("Networks", choices, default=ready, explain=_WHICH)
        return True

    def _ask(self, name: str, question: SetupQuestion) -> bool:
        if name not in self._chosen:
            return False
        known = find_answer(name, question, self._setup.writer)
        check = partial(self._check, name, question) if question.check else None
        kind = "token" if question.name.endswith("TOKEN") else "answer"
        typed = ask_setup_question(self._setup, question, self._networks[name].title, check, known, kind)
        if typed and typed != known:
            write_answer(name, question, typed, self._setup.writer)
            if question.is_secret and not question.public:
                file = self._setup.services.profile.secrets_file
                self._setup.say(f"Saved {question.name} {mask(typed)} in {file}.")
        return True

    def _check(self, name: str, question: SetupQuestion, value: str) -> ProbeResult:
        trial = build_trial(name, self._networks[name], self._setup.writer, self._setup.network_urls.get(name, ""))
        return self._setup.services.networks().try_answer(question, add_answer(trial, question, value))

    def _finish_network(self, name: str) -> bool:
        """Make sure that the gateway serves a chosen network, and say what to do next."""
        if name in self._chosen:
            self._setup.writer.enable_platform(name)
            if self._networks[name].next_step:
                self._setup.say(self._networks[name].next_step)
        return False

    def _known(self, name: str) -> dict[str, str]:
        """Return the stored answers of a network, displayable."""
        writer = self._setup.writer
        answers = {one.name: (one, find_answer(name, one, writer)) for one in self._networks[name].questions}
        return {key: mask(text) if one.is_secret else text for key, (one, text) in answers.items() if text}

    def _describe(self, name: str) -> str:
        known = " ".join(", ".join(f"{key} {text}" for key, text in self._known(name).items()).split())
        return known or "not set up yet"


def find_answer(network: str, question: SetupQuestion, writer: ConfigWriter) -> str:
    """Return the stored answer to a question, or an empty text."""
    if question.is_secret:
        return writer.secrets().get(question.name) or ""
    settings = writer.settings().platforms.get(network)
    return settings.options.get(question.name, "") if settings else ""


def build_trial(network: str, setup: NetworkSetup, writer: ConfigWriter, base_url: str = "") -> NetworkTrial:
    """Return the stored answers of a network."""
    answers = {one: find_answer(network, one, writer) for one in setup.questions}
    secrets = {one.name: text for one, text in answers.items() if text and one.is_secret}
    settings = writer.settings().platforms.get(network)
    return NetworkTrial(secrets, settings.options if settings else {}, base_url)


def add_answer(trial: NetworkTrial, question: SetupQuestion, value: str) -> NetworkTrial:
    """Return the answers with one more, or another one."""
    given: Mapping[str, str] = {question.name: value}
    if question.is_secret:
        return NetworkTrial({**trial.secrets, **given}, trial.options, trial.base_url)
    return NetworkTrial(trial.secrets, {**trial.options, **given}, trial.base_url)


def write_answer(network: str, question: SetupQuestion, value: str, writer: ConfigWriter) -> None:
    """Store an answer as a secret or as an option of its network; an empty option is removed."""
    if question.is_secret:
        writer.keep_secret(question.name, value)
    elif value and value != question.default:
        writer.put(f"platforms.{network}.options.{question.name}", value)
    else:
        writer.reset_setting(f"platforms.{network}.options.{question.name}")
