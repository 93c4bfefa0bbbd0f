"""Setup section 2: chat networks, each with the questions that its adapter declares."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from msgspec import structs

from talaria.cli.commands.setup.questions import MenuChoice
from talaria.cli.commands.setup.wizard_state import SetupContext, ask_setup_question
from talaria.contracts.setup import NetworkSetup, NetworkTrial, ProbeResult, SetupQuestion
from talaria.core.addresses import WEB
from talaria.settings.config_writer import ConfigWriter
from talaria.settings.secrets import mask
from talaria.settings.sections.chats import BUILT_IN_PLATFORMS, ChatAccount

_WHICH = "Give numbers or names separated by commas, or `none`. Networks that you leave out stay as they are."
_ACTIONS = "Each account is a bot of its own, with its own token. `check` tests the stored answers and changes nothing."
_NAME = (
    "A short name in lower case, for example `work`. Routes and access lists use it, and so do the names of its "
    "secrets, for example WORK_TELEGRAM_BOT_TOKEN."
)
_REMOVAL = "Its conversations and everything else in the database stay."


class ChatSection:
    """Questions about networks; an answer is written once its network accepts it."""

    title = "Chat networks"
    purpose = "Where people can reach the agent. The gateway uses these answers when it runs."

    def __init__(self, setup: SetupContext) -> None:
        self._setup = setup
        self._networks = setup.services.networks().setups()
        self._chosen: list[str] = []
        self._asked_about: dict[str, ChatAccount] = {}  # by network: the account that the questions are about

    def steps(self) -> Sequence[Callable[[], bool]]:
        """Return the questions in order."""
        steps: list[Callable[[], bool]] = [self._ask_which]
        for name, network in self._networks.items():
            steps.append(partial(self._ask_action, name))
            steps += [partial(self._ask, name, question) for question in network.questions]
            steps.append(partial(self._finish_network, name))
        return steps

    def _ask_which(self) -> bool:
        self._chosen = []
        choices = [MenuChoice(name, self._describe(name)) for name in self._networks]
        ready = [
            name
            for name in self._networks
            if self._read_stored_answers(ChatAccount(name, name)) or self._list_accounts(name)
        ]
        self._chosen = self._setup.questions.choose_some("Networks", choices, default=ready, explain=_WHICH)
        return True

    def _ask_action(self, name: str) -> bool:
        """Ask what to do with a network that is set up; another one is set up without a question."""
        self._asked_about.pop(name, None)
        if name not in self._chosen:
            return False
        accounts = self._list_accounts(name)
        if not accounts:
            self._asked_about[name] = ChatAccount(name, name)
            return False
        title = self._networks[name].title
        self._setup.print_line(f"{title} is set up{_list_names(accounts)}.")
        choices = (
            MenuChoice("change", "change its answers"),
            MenuChoice("add", "add another account"),
            MenuChoice("check", f"test the stored answers with {title}"),
            MenuChoice("remove", "remove it"),
        )
        action = self._setup.questions.choose(title, choices, default="change", explain=_ACTIONS)
        if action == "add":
            self._asked_about[name] = ChatAccount(self._ask_name(name), name)
            return True
        account = self._choose_account(accounts)
        match action:
            case "change":
                self._asked_about[name] = account
            case "check":
                self._check_stored(account)
            case "remove":
                self._remove(account)
        return True

    def _ask_name(self, network: str) -> str:
        """Return the name of a new account; one that was begun and left can be continued."""
        while True:
            typed = self._setup.questions.ask("Name of the new account", explain=_NAME)
            settings = self._setup.writer.load_settings().platforms
            taken = {ChatAccount(one, "").secret_name("") for one in (*self._networks, *settings)}
            begun = typed in settings and settings[typed].network == network
            if not re.fullmatch(r"[a-z][a-z0-9_-]{0,31}", typed) or typed == WEB:
                self._setup.print_line("A name has lower-case letters, digits, - and _, and starts with a letter.")
            elif (ChatAccount(typed, "").secret_name("") in taken and not begun) or (
                ChatAccount(typed, network) in self._list_accounts(network)
            ):
                self._setup.print_line(f"`{typed}` is taken. Choose another name.")
            else:
                return typed

    def _choose_account(self, accounts: Sequence[ChatAccount]) -> ChatAccount:
        if len(accounts) == 1:
            return accounts[0]
        choices = [MenuChoice(one.name, _show(self._read_stored_answers(one))) for one in accounts]
        name = self._setup.questions.choose("Account", choices, default=accounts[0].name, explain=_ACTIONS)
        return next(one for one in accounts if one.name == name)

    def _check_stored(self, account: ChatAccount) -> None:
        """Test the stored answers, without a change."""
        setup = self._networks[account.network]
        trial = self._build_trial(account)
        for problem in setup.doctor(trial) if setup.doctor else ():
            self._setup.print_line(problem, "yellow")
        checks = [one for one in setup.questions if one.check and (one.name in trial.secrets or not one.is_secret)]
        for question in checks:
            self._setup.print_line(f"Checking with {setup.title} …", "dim")
            result = self._setup.services.networks().try_answer(question, trial)
            self._setup.print_line(result.sentence, "green" if result.right else "yellow")
        if not checks:
            self._setup.print_line(f"{setup.title} has nothing that could be tested from here.")

    def _remove(self, account: ChatAccount) -> None:
        stays = "" if account.name != account.network else " Access lists and other settings of the network stay."
        if not self._setup.questions.confirm(f"Remove {account.name}?", default=False, explain=_REMOVAL + stays):
            return
        known = BUILT_IN_PLATFORMS.get(account.network)
        asked = [one.name for one in self._networks[account.network].questions if one.is_secret]
        self._setup.writer.remove_account(account, {*asked, *(known.secret_names if known else ())})
        self._setup.print_line(f"Removed {account.name}. A running gateway serves it until it is restarted.")

    def _ask(self, name: str, question: SetupQuestion) -> bool:
        account = self._asked_about.get(name)
        if account is None or not self._applies(account, question):
            return False
        known = find_answer(account, question, self._setup.writer)
        check = partial(self._check, account, question) if question.check else None
        kind = "token" if question.name.endswith("TOKEN") else "answer"
        shown = self._adapt(account, question)
        typed = ask_setup_question(self._setup, shown, self._networks[name].title, check, known, kind)
        if typed and typed != known:
            if account.name != name:
                self._setup.writer.put(f"platforms.{account.name}.network", name)
            write_answer(account, question, typed, self._setup.writer)
            if question.is_secret and not question.public:
                file = self._setup.services.profile.secrets_file
                self._setup.print_line(f"Saved {account.secret_name(question.name)} {mask(typed)} in {file}.")
        return True

    def _applies(self, account: ChatAccount, question: SetupQuestion) -> bool:
        """Return whether the answer without which a question makes no sense was given."""
        conditions = [one for one in self._networks[account.network].questions if one.name == question.only_with]
        return all(find_answer(account, one, self._setup.writer) for one in conditions)

    def _adapt(self, account: ChatAccount, question: SetupQuestion) -> SetupQuestion:
        """Return a question as asked for an account: with the name of its secret, or a free port."""
        if question.is_secret:
            return structs.replace(question, prompt=question.prompt or account.secret_name(question.name))
        if not question.distinct:
            return question
        others = {
            find_answer(one, asked, self._setup.writer) or asked.default
            for name, network in self._networks.items()
            for one in self._list_accounts(name)
            for asked in network.questions
            if asked.name == question.name and one != account
        }

        def find_problem(text: str) -> str:
            if text in others:
                return f"Another account uses {text} already."
            return question.problem(text) if question.problem else ""

        free = int(question.default)
        while str(free) in others:
            free += 1
        return structs.replace(question, default=str(free), problem=find_problem)

    def _check(self, account: ChatAccount, question: SetupQuestion, value: str) -> ProbeResult:
        trial = add_answer(self._build_trial(account), question, value)
        return self._setup.services.networks().try_answer(question, trial)

    def _build_trial(self, account: ChatAccount) -> NetworkTrial:
        base_url = self._setup.network_urls.get(account.network, "")
        return build_trial(account, self._networks[account.network], self._setup.writer, base_url)

    def _finish_network(self, name: str) -> bool:
        """Make sure that the gateway serves a chosen network, and say what to do next."""
        account = self._asked_about.get(name)
        if account is None:
            return False
        self._setup.writer.enable_account(account)
        title, next_step = self._networks[name].title, self._networks[name].next_step
        if account not in self._list_accounts(name):
            self._setup.print_line(f"{title} isn't complete yet, so the gateway doesn't serve it.", "yellow")
        elif next_step:
            self._setup.print_line(next_step)
        return False

    def _list_accounts(self, network: str) -> list[ChatAccount]:
        return find_accounts(network, self._setup.writer)

    def _read_stored_answers(self, account: ChatAccount) -> dict[str, str]:
        """Return the stored answers of an account, displayable."""
        writer = self._setup.writer
        answers = [(one, find_answer(account, one, writer)) for one in self._networks[account.network].questions]
        return {one.name: mask(text) if one.is_secret else text for one, text in answers if text}

    def _describe(self, name: str) -> str:
        others = [one.name for one in self._list_accounts(name) if one.name != name]
        also = [f"also {', '.join(others)}"] if others else []
        return " ".join(
            "; ".join(filter(None, (_show(self._read_stored_answers(ChatAccount(name, name))), *also))).split()
        ) or ("not set up yet")


def find_accounts(network: str, writer: ConfigWriter) -> list[ChatAccount]:
    """Return the accounts of a network that are set up."""
    settings, secrets = writer.load_settings().platforms, writer.read_secrets()
    named = [name for name, one in settings.items() if one.network == network and name != network]
    accounts = [ChatAccount(name, network) for name in (network, *named)]
    known = BUILT_IN_PLATFORMS.get(network)
    if known is None or not known.secrets:
        return [one for one in accounts if one.name in settings and settings[one.name].enabled]
    return [one for one in accounts if one.has_secrets(secrets.get)]


def find_answer(account: ChatAccount, question: SetupQuestion, writer: ConfigWriter) -> str:
    """Return the stored answer to a question, or an empty text."""
    if question.is_secret:
        return writer.read_secrets().get(account.secret_name(question.name)) or ""
    settings = writer.load_settings().platforms.get(account.name)
    return settings.options.get(question.name, "") if settings else ""


def build_trial(account: ChatAccount, setup: NetworkSetup, writer: ConfigWriter, base_url: str = "") -> NetworkTrial:
    """Return the stored answers of an account, by the names of the questions."""
    answers = {one: find_answer(account, one, writer) for one in setup.questions}
    secrets = {one.name: text for one, text in answers.items() if text and one.is_secret}
    settings = writer.load_settings().platforms.get(account.name)
    return NetworkTrial(secrets, settings.options if settings else {}, base_url, account.name)


def add_answer(trial: NetworkTrial, question: SetupQuestion, value: str) -> NetworkTrial:
    """Return the answers with one more, or another one."""
    given: Mapping[str, str] = {question.name: value}
    if question.is_secret:
        return structs.replace(trial, secrets={**trial.secrets, **given})
    return structs.replace(trial, options={**trial.options, **given})


def write_answer(account: ChatAccount, question: SetupQuestion, value: str, writer: ConfigWriter) -> None:
    """Store an answer as a secret or as an option of its account; an empty option is removed."""
    key = f"platforms.{account.name}.options.{question.name}"
    if question.is_secret:
        writer.keep_secret(account.secret_name(question.name), value)
    elif value and value != question.default:
        writer.put(key, value)
    else:
        writer.reset_setting(key)


def _show(known: Mapping[str, str]) -> str:
    return ", ".join(f"{key} {text}" for key, text in known.items())


def _list_names(accounts: Sequence[ChatAccount]) -> str:
    """Return the names of several accounts for a sentence; nothing if the only one is named after its network."""
    names = [one.name for one in accounts]
    return "" if names == [accounts[0].network] else f": {', '.join(names)}"
