"""Setup for scripts: check everything first, then write all of it or nothing."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from talaria.cli.commands.setup.chat_section import add_answer, build_trial
from talaria.cli.commands.setup.wizard_state import WizardProgress, order_engines
from talaria.cli.services import Services
from talaria.contracts.setup import (
    NetworkSetup,
    ProbeResult,
    ProviderOffer,
    SearchEngineOffer,
    SetupQuestion,
    TrialAccount,
)
from talaria.core.errors import Refused
from talaria.settings.config_writer import (
    EMBEDDED,
    ConfigWriter,
    build_key_name,
    build_provider_key,
    check_setting,
    is_provider_name,
)
from talaria.settings.errors import find_nearest
from talaria.settings.sections.chats import ChatAccount

_STANDARD_INPUT = "-"


class SetupCheck(Struct, frozen=True):
    """Result of one check."""

    what: str
    outcome: str
    sentence: str


class SetupPlan(Struct):
    """Changes to write once every check has passed; a setting without a text is reset."""

    settings: dict[str, str | None] = {}
    secrets: dict[str, str] = {}
    accounts: list[ChatAccount] = []
    sections: list[str] = []
    checks: list[SetupCheck] = []

    @property
    def has_passed(self) -> bool:
        """Return whether no check has failed."""
        return all(check.outcome == "right" for check in self.checks)


def run_non_interactive(arguments: argparse.Namespace, services: Services) -> int:
    """Check the options, write the changes, print a report and return the exit code."""
    writer = ConfigWriter(services.profile, services.environment)
    planner = SetupPlanner(arguments, services, writer)
    plan = planner.plan()
    for key, text in plan.settings.items():
        if text is not None:
            check_setting(key, text)
    if plan.has_passed:
        _write(plan, writer, WizardProgress(services.profile))
    _report(plan, writer, services, as_json=arguments.json)
    return 0 if plan.has_passed else 1


class SetupPlanner:
    """Planner that checks the options with providers and networks, unless checks are off."""

    def __init__(self, arguments: argparse.Namespace, services: Services, writer: ConfigWriter) -> None:
        self._arguments = arguments
        self._probes = services.setup_probes()
        self._search = self._probes.search()
        self._networks = services.networks()
        self._writer = writer
        self._settings = writer.load_settings()
        self._secrets = writer.read_secrets()
        self._sources = SecretSources(services.environment)

    def plan(self) -> SetupPlan:
        """Return the changes to write, with the results of the checks."""
        plan = SetupPlan()
        if self._arguments.provider or self._arguments.model:
            self._plan_model(plan)
        elif self._arguments.key_from or self._arguments.base_url:
            raise Refused("--key-from and --base-url need a provider: add --provider NAME.")
        if self._arguments.chat:
            self._plan_networks(plan)
        self._plan_tools(plan)
        if not plan.sections:
            raise Refused("Nothing to set up. `talaria help setup` lists the options.")
        return plan

    def _plan_model(self, plan: SetupPlan) -> None:
        name = self._arguments.provider or self._settings.model.provider
        if not name:
            raise Refused("--model needs a provider: add --provider NAME.")
        plan.sections.append("model")
        plan.settings["model.provider"] = name
        if self._arguments.model or name != self._settings.model.provider:
            plan.settings["model.name"] = self._arguments.model or None
        if name == EMBEDDED:
            plan.settings["embedded.enabled"] = "true"
            self._check_embedded(plan)
            return
        offer = self._offer(name)
        key = self._sources.read(self._arguments.key_from, "--key-from") if self._arguments.key_from else ""
        if self._arguments.base_url:
            plan.settings[build_provider_key(name, "base_url")] = self._arguments.base_url
        if key:
            plan.secrets[offer.key_name] = key
            plan.settings |= self._build_key_setting(offer)
        known = key or (self._secrets.get(offer.key_name) if offer.key_name else "") or ""
        if not self._arguments.no_check:
            account = TrialAccount(name, self._arguments.base_url or "", offer.key_name if known else "", known)
            self._add_check(plan, name, self._add_model(self._probes.try_account(account), offer.title))

    def _offer(self, name: str) -> ProviderOffer:
        offers = {offer.name: offer for offer in self._probes.providers()}
        if name in offers:
            offer = offers[name]
            return offer if offer.key_name else msgspec.structs.replace(offer, key_name=build_key_name(name))
        if not self._arguments.base_url:
            close = find_nearest(name, [*offers, EMBEDDED])
            hint = f"the nearest is `{close}`" if close else "one of your own needs --base-url"
            raise Refused(f"`{name}` isn't a known provider; {hint}.")
        if not is_provider_name(name):
            raise Refused(f"`{name}` can't be the name of a provider: use lower-case letters and digits.")
        return ProviderOffer(name, name, self._arguments.base_url, build_key_name(name))

    def _build_key_setting(self, offer: ProviderOffer) -> dict[str, str | None]:
        """Return the setting that names a provider's key, if it is not already known."""
        known = {one.key_name for one in self._probes.providers() if one.name == offer.name}
        return {} if offer.key_name in known else {build_provider_key(offer.name, "key"): offer.key_name}

    def _check_embedded(self, plan: SetupPlan) -> None:
        if not self._arguments.no_check and self._probes.discover().embedded == "missing":
            sentence = "The built-in model isn't installed. `talaria model install-embedded` installs it."
            self._add_check(plan, EMBEDDED, ProbeResult("unreachable", sentence))

    def _add_model(self, result: ProbeResult, title: str) -> ProbeResult:
        model = self._arguments.model
        if not result.right or not model or any(one == model or one.endswith(f"/{model}") for one in result.models):
            return result
        close = find_nearest(model, result.models)
        return ProbeResult("odd", f"{title} has no model `{model}`{f'; the nearest is `{close}`' if close else ''}.")

    def _plan_networks(self, plan: SetupPlan) -> None:
        networks = self._networks.setups()
        given = dict(_split_answer(text) for text in self._arguments.chat)
        accounts = [ChatAccount(name, name) for name in networks]
        accounts += [ChatAccount(name, one.network) for name, one in self._writer.load_settings().platforms.items()
                     if one.network in networks and one.network != name]  # fmt: skip
        for account in accounts:
            self._plan_account(plan, account, networks[account.network], given)
        for name in given:
            close = find_nearest(name, [_answer_name(account, one) for account in accounts
                                   for one in networks[account.network].questions])  # fmt: skip
            raise Refused(f"`{name}` isn't an answer of a chat network{f'; the nearest is `{close}`' if close else ''}."
                          " `talaria setup --list-networks` lists them.")  # fmt: skip
        if plan.accounts:
            plan.sections.append("chat")

    def _plan_account(self, plan: SetupPlan, account: ChatAccount, setup: NetworkSetup, given: dict[str, str]) -> None:
        """Take the answers of an account out of ``given``, and check them."""
        trial = build_trial(account, setup, self._writer, self._arguments.network_url.get(account.network, ""))
        asked = [(one, given.pop(_answer_name(account, one))) for one in setup.questions
                 if _answer_name(account, one) in given]  # fmt: skip
        for question, source in asked:
            value = self._read_answer(account, question, source)
            trial = add_answer(trial, question, value)
            if question.is_secret:
                plan.secrets[_answer_name(account, question)] = value
            else:
                plan.settings[f"platforms.{account.name}.options.{question.name}"] = value
        for question, _ in asked:
            if question.check is not None and not self._arguments.no_check:
                result = self._networks.try_answer(question, trial)
                self._add_check(plan, account.secret_name(question.name), result)
        if asked:
            plan.accounts.append(account)

    def _read_answer(self, account: ChatAccount, question: SetupQuestion, source: str) -> str:
        is_hidden = question.is_secret and not question.public
        value = self._sources.read(source, f"--chat {_answer_name(account, question)}") if is_hidden else source
        if question.problem and (problem := question.problem(value)):
            raise Refused(f"{_answer_name(account, question)}: {problem}")
        return value

    def _plan_tools(self, plan: SetupPlan) -> None:
        given = {
            "tools.toolsets": self._arguments.toolsets,
            "sandbox.enabled": self._arguments.sandbox,
            "approval.mode": self._arguments.approval,
        }
        chosen = {key: text for key, text in given.items() if text is not None}
        chosen |= self._plan_search(plan)
        if chosen:
            plan.settings |= chosen
            plan.sections.append("tools")

    def _plan_search(self, plan: SetupPlan) -> dict[str, str]:
        """Return the settings of the search engine; its key is checked and added to the plan."""
        name, source = self._arguments.search_engine, self._arguments.search_key_from
        if name is None:
            if source:
                raise Refused("--search-key-from needs an engine: add --search-engine NAME.")
            return {}
        if "://" in name:
            return {"web.addresses.searxng": name}
        offers = self._search.engines()
        offer = next((one for one in offers if one.name == name), None)
        if offer is None:
            raise Refused(f"`{name}` isn't a search engine. Give an address, or one of {_list_names(offers)}.")
        key = self._sources.read(source, "--search-key-from") if source else ""
        if offer.key_name and not (key or offer.has_key):
            raise Refused(f"{offer.title} needs a key: add --search-key-from SOURCE.")
        if key and offer.key_name:
            plan.secrets[offer.key_name] = key
            if not self._arguments.no_check:
                self._add_check(plan, name, self._search.try_engine(name, key))
        return {"web.engines": msgspec.json.encode(order_engines(offers, name)).decode()}

    def _add_check(self, plan: SetupPlan, what: str, result: ProbeResult) -> None:
        plan.checks.append(SetupCheck(what, result.outcome, result.sentence))


def _list_names(offers: Sequence[SearchEngineOffer]) -> str:
    return ", ".join(offer.name for offer in offers)


def _answer_name(account: ChatAccount, question: SetupQuestion) -> str:
    return account.secret_name(question.name) if question.is_secret else f"{account.name}.{question.name}"


def _split_answer(text: str) -> tuple[str, str]:
    name, separator, source = text.partition("=")
    if not name or not separator or not source:
        raise Refused("--chat must be NAME=SOURCE, for example TELEGRAM_BOT_TOKEN=token.txt.")
    return name, source


class SecretSources:
    """Sources of secrets: a variable, a file, or standard input, once."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._read_input = False

    def read(self, source: str, option: str) -> str:
        """Return the secret; errors never quote ``source``, which may be a key given by mistake."""
        value = self._find(source, option).strip()
        if not value:
            raise Refused(f"The value that {option} refers to is empty.")
        return value

    def _find(self, source: str, option: str) -> str:
        if source == _STANDARD_INPUT:
            if self._read_input:
                raise Refused("Only one key or token can be read from standard input.")
            self._read_input = True
            return sys.stdin.read()
        if source in self._environment:
            return self._environment[source]
        try:
            return Path(source).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise Refused(
                f"{option} names neither an environment variable that is set nor a readable file; "
                "- means standard input."
            ) from error


def _write(plan: SetupPlan, writer: ConfigWriter, progress: WizardProgress) -> None:
    for name, value in plan.secrets.items():
        writer.keep_secret(name, value)
    for key, text in plan.settings.items():
        if text is None:
            writer.reset_setting(key)
        else:
            writer.put(key, text)
    for account in plan.accounts:
        writer.enable_account(account)
    for section in plan.sections:
        progress.finish(section)


def _report(plan: SetupPlan, writer: ConfigWriter, services: Services, *, as_json: bool) -> None:
    if as_json:
        services.terminal.json(_as_data(plan, writer))
        return
    for check in plan.checks:
        services.terminal.line(f"{check.what}: {check.sentence}")
    for key, shown in writer.written.items():
        services.terminal.line(f"{key} = {shown}")
    for note in writer.notes:
        services.terminal.note(note)
    if not plan.has_passed:
        services.terminal.note("Nothing was saved; --no-check saves without checking.")


def _as_data(plan: SetupPlan, writer: ConfigWriter) -> dict[str, Any]:
    written = [{"key": key, "value": shown} for key, shown in writer.written.items()]
    return {"ok": plan.has_passed, "checks": plan.checks, "written": written, "notes": writer.notes}
