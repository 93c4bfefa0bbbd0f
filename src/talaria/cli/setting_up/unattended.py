"""The set-up for scripts: everything is checked first, then all of it is written, or nothing."""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from talaria.cli.services import Services
from talaria.cli.setting_up.chat_section import HOMESERVER, TOKENS
from talaria.cli.setting_up.desk import Account, ProviderOffer, Tried
from talaria.cli.setting_up.model_section import EMBEDDED, is_provider_name, key_name_of
from talaria.cli.setting_up.progress import Progress
from talaria.cli.setting_up.writing import Writer, check_setting, key_of
from talaria.core.errors import Refused
from talaria.settings.checks import is_web_address
from talaria.settings.faults import nearest

_STANDARD_INPUT = "-"


class Check(Struct, frozen=True):
    """What was tried, and how it went."""

    what: str
    outcome: str
    sentence: str


class Plan(Struct):
    """What will be written once every check has gone well; a setting without a text goes back to its default."""

    settings: dict[str, str | None] = {}
    secrets: dict[str, str] = {}
    sections: list[str] = []
    checks: list[Check] = []

    @property
    def sound(self) -> bool:
        """Whether nothing speaks against it."""
        return all(check.outcome == "right" for check in self.checks)


def set_up(arguments: argparse.Namespace, services: Services) -> int:
    """Check what the options say, write it, report it, and return the exit code."""
    writer = Writer(services)
    planning = Planning(arguments, services, writer)
    plan = planning.plan()
    for key, text in plan.settings.items():
        if text is not None:
            check_setting(key, text)
    if plan.sound:
        _write(plan, writer, Progress(services.profile))
    _report(plan, writer, services, as_json=arguments.json)
    return 0 if plan.sound else 1


class Planning:
    """Makes a plan of the options, asking providers and networks on the way unless that was turned off."""

    def __init__(self, arguments: argparse.Namespace, services: Services, writer: Writer) -> None:
        self._said = arguments
        self._desk = services.setup_desk()
        self._settings = writer.settings()
        self._secrets = writer.secrets()
        self._sources = Sources(services.environment)

    def plan(self) -> Plan:
        """Return what is to be written, with how the checks went."""
        plan = Plan()
        if self._said.provider or self._said.model:
            self._plan_model(plan)
        elif self._said.key_from or self._said.base_url:
            raise Refused("--key-from and --base-url belong to a provider: add --provider NAME.")
        self._plan_tokens(plan)
        self._plan_tools(plan)
        if not plan.sections:
            raise Refused("Nothing was given to set up; `talaria help setup` lists the options.")
        return plan

    def _plan_model(self, plan: Plan) -> None:
        name = self._said.provider or self._settings.model.provider
        if not name:
            raise Refused("A model belongs to a provider: add --provider NAME.")
        plan.sections.append("model")
        plan.settings["model.provider"] = name
        if self._said.model or name != self._settings.model.provider:
            plan.settings["model.name"] = self._said.model or None
        if name == EMBEDDED:
            plan.settings["embedded.enabled"] = "true"
            self._check_embedded(plan)
            return
        offer = self._offer(name)
        key = self._sources.read(self._said.key_from, "--key-from") if self._said.key_from else ""
        if self._said.base_url:
            plan.settings[key_of(name, "base_url")] = self._said.base_url
        if key:
            plan.secrets[offer.key_name] = key
            plan.settings |= self._key_setting(offer)
        known = key or (self._secrets.get(offer.key_name) if offer.key_name else "") or ""
        if not self._said.no_check:
            account = Account(name, self._said.base_url or "", offer.key_name if known else "", known)
            self._note(plan, name, self._with_model(self._desk.try_account(account), offer.title))

    def _offer(self, name: str) -> ProviderOffer:
        offers = {offer.name: offer for offer in self._desk.providers()}
        if name in offers:
            offer = offers[name]
            return offer if offer.key_name else msgspec.structs.replace(offer, key_name=key_name_of(name))
        if not self._said.base_url:
            close = nearest(name, [*offers, EMBEDDED])
            hint = f"the nearest is `{close}`" if close else "one of your own needs --base-url"
            raise Refused(f"`{name}` is not a known provider; {hint}.")
        if not is_provider_name(name):
            raise Refused(f"`{name}` cannot be the name of a provider: take small letters and digits.")
        return ProviderOffer(name, name, self._said.base_url, key_name_of(name))

    def _key_setting(self, offer: ProviderOffer) -> dict[str, str | None]:
        """Return where a provider's key is to be looked for, if that is not known of it."""
        known = {one.key_name for one in self._desk.providers() if one.name == offer.name}
        return {} if offer.key_name in known else {key_of(offer.name, "key"): offer.key_name}

    def _check_embedded(self, plan: Plan) -> None:
        if not self._said.no_check and self._desk.discover().embedded == "missing":
            sentence = "The embedded model is not installed: `talaria model install-embedded` does it."
            self._note(plan, EMBEDDED, Tried("unreachable", sentence))

    def _with_model(self, tried: Tried, title: str) -> Tried:
        wanted = self._said.model
        if not tried.right or not wanted or any(one == wanted or one.endswith(f"/{wanted}") for one in tried.models):
            return tried
        close = nearest(wanted, tried.models)
        return Tried("odd", f"{title} has no model `{wanted}`{f'; the nearest is `{close}`' if close else ''}.")

    def _plan_tokens(self, plan: Plan) -> None:
        if self._said.matrix_homeserver:
            if not is_web_address(self._said.matrix_homeserver):
                raise Refused("What --matrix-homeserver takes begins with http:// or https://.")
            plan.secrets[HOMESERVER] = self._said.matrix_homeserver
        elif self._said.matrix_token_from and not self._secrets.get(HOMESERVER):
            raise Refused("A Matrix token belongs to a server: add --matrix-homeserver URL.")
        for token in TOKENS:
            source = getattr(self._said, f"{token.asked}_token_from")
            if not source:
                continue
            value = self._sources.read(source, f"--{token.asked.replace('_', '-')}-token-from")
            plan.secrets[token.secret] = value
            if not self._said.no_check:
                base = self._said.network_url.get(token.network, "")
                if token.network == "matrix":
                    base = base or plan.secrets.get(HOMESERVER) or self._secrets.get(HOMESERVER) or ""
                self._note(plan, token.asked, self._desk.try_token(token.asked, value, base))
        if any(token.secret in plan.secrets for token in TOKENS) or HOMESERVER in plan.secrets:
            plan.sections.append("chat")

    def _plan_tools(self, plan: Plan) -> None:
        given = {
            "tools.toolsets": self._said.toolsets,
            "tools.search_engine": self._said.search_engine,
            "sandbox.enabled": self._said.sandbox,
            "approval.mode": self._said.approval,
        }
        chosen = {key: text for key, text in given.items() if text is not None}
        if chosen:
            plan.settings |= chosen
            plan.sections.append("tools")

    def _note(self, plan: Plan, what: str, tried: Tried) -> None:
        plan.checks.append(Check(what, tried.outcome, tried.sentence))


class Sources:
    """Where keys and tokens are read from: a variable, a file, or the standard input once."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._read_input = False

    def read(self, source: str, option: str) -> str:
        """Return what is there; ``source`` is never repeated, since it may be a key that was given by mistake."""
        value = self._find(source, option).strip()
        if not value:
            raise Refused(f"What {option} names is empty.")
        return value

    def _find(self, source: str, option: str) -> str:
        if source == _STANDARD_INPUT:
            if self._read_input:
                raise Refused("Only one key or token can be read from the standard input.")
            self._read_input = True
            return sys.stdin.read()
        if source in self._environment:
            return self._environment[source]
        try:
            return Path(source).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise Refused(
                f"{option} names neither a variable that is set nor a file that can be read; - is standard input."
            ) from error


def _write(plan: Plan, writer: Writer, progress: Progress) -> None:
    for name, value in plan.secrets.items():
        writer.keep_secret(name, value)
    for key, text in plan.settings.items():
        if text is None:
            writer.take_out(key)
        else:
            writer.put(key, text)
    for section in plan.sections:
        progress.finish(section)


def _report(plan: Plan, writer: Writer, services: Services, *, as_json: bool) -> None:
    if as_json:
        services.terminal.json(_as_data(plan, writer))
        return
    for check in plan.checks:
        services.terminal.line(f"{check.what}: {check.sentence}")
    for key, shown in writer.written.items():
        services.terminal.line(f"{key} = {shown}")
    for note in writer.notes:
        services.terminal.note(note)
    if not plan.sound:
        services.terminal.note("Nothing was written; --no-check writes it unchecked.")


def _as_data(plan: Plan, writer: Writer) -> dict[str, Any]:
    written = [{"key": key, "value": shown} for key, shown in writer.written.items()]
    return {"ok": plan.sound, "checks": plan.checks, "written": written, "notes": writer.notes}
