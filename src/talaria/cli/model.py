"""`talaria model`: show which model is configured and whether it answers, choose another, install the built-in one."""

import argparse
from importlib import import_module

from msgspec import structs

from talaria.cli.gateway_remark import remark_gateway
from talaria.cli.models import abilities, price
from talaria.cli.services import ModelDesk, Services
from talaria.contracts.models import Chosen
from talaria.core.errors import ProviderError
from talaria.settings.keys import variable

INSTALL_EMBEDDED = "install-embedded"

# Brings tomlkit along, which only a choice needs.
_EDITING = "talaria.settings.edit"
_MORE = f"""\
Without a name it shows the model in use and asks it for a sign of life.
`talaria models` lists what can be chosen. `talaria config unset
model.provider` lets Talaria choose by itself again.

  talaria model anthropic:claude-opus-5-5
  talaria model ollama
  talaria model {INSTALL_EMBEDDED}    the built-in model that needs no key (130 MB)
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take the name of a model."""
    parser.epilog = _MORE
    parser.add_argument(
        "name", nargs="?", metavar="NAME", help=f"MODEL, PROVIDER:MODEL, PROVIDER, or {INSTALL_EMBEDDED}"
    )
    parser.add_argument("--offline", action="store_true", help="don't ask the provider whether the model answers")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace, services: Services) -> int:
    """Show, choose or install."""
    if arguments.name == INSTALL_EMBEDDED:
        services.terminal.line(services.models().install_embedded())
        return 0
    desk = services.models()
    chosen = desk.find(arguments.name) if arguments.name else desk.chosen()
    if arguments.name:
        _write(chosen, services)
    asks = not (arguments.name or arguments.offline or chosen.limits)  # `find` has asked already
    problem = _find_problem(chosen, desk) if asks else ""
    if arguments.json:
        answers = not problem if asks else None
        services.terminal.json({**structs.asdict(chosen), "answers": answers, "problem": problem or None})
        return 0
    _print(chosen, services)
    if problem:
        services.terminal.line(services.terminal.styled(f"It does not answer. {problem}", "yellow"))
    elif asks:
        services.terminal.line("It answers.")
    return 0


def _find_problem(chosen: Chosen, desk: ModelDesk) -> str:
    try:
        desk.check(chosen)
    except ProviderError as error:
        return error.for_owner
    return ""


def _write(chosen: Chosen, services: Services) -> None:
    editing = import_module(_EDITING)
    for key, value in (("provider", chosen.provider), ("name", chosen.model)):
        editing.set_value(services.profile, f"model.{key}", value)
        override = variable(("model", key))
        if override in services.environment:
            services.terminal.note(f"The environment variable {override} is set and wins over the file.")
    services.terminal.note(f"Written to {services.profile.config_file}.")
    remark_gateway(services, live=True)


def _print(chosen: Chosen, services: Services) -> None:
    info, terminal = chosen.info, services.terminal
    terminal.line(terminal.styled(f"{chosen.provider}:{chosen.model}", "bold"))
    terminal.line(chosen.why)
    facts = [f"{info.context_limit:,} tokens of context", abilities(info) or "talk only"]
    if info.input_price or info.output_price:
        facts.append(f"{price(info.input_price)} in and {price(info.output_price)} out for a million tokens")
    if not info.known:
        facts.append("not in the catalogue, so these are cautious guesses")
    terminal.line("; ".join(facts) + ".")
    if chosen.limits:
        terminal.line(chosen.limits)
