"""`talaria model`: show which model answers and why, choose another, install the embedded one."""

import argparse
from importlib import import_module

from talaria.cli.models import abilities, price
from talaria.cli.services import Services
from talaria.contracts.models import Chosen
from talaria.settings.keys import variable

INSTALL_EMBEDDED = "install-embedded"

# Brings tomlkit along, which only a choice needs.
_EDITING = "talaria.settings.edit"
_MORE = f"""\
Without a name it shows the model in use. `talaria models` lists what can be
chosen. `talaria config unset model.provider` lets Talaria choose by itself again.

  talaria model anthropic:claude-opus-5-5
  talaria model ollama
  talaria model {INSTALL_EMBEDDED}    the small model that needs no key (130 MB)
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take the name of a model."""
    parser.epilog = _MORE
    parser.add_argument(
        "name", nargs="?", metavar="NAME", help=f"MODEL, PROVIDER:MODEL, PROVIDER, or {INSTALL_EMBEDDED}"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace, services: Services) -> int:
    """Show, choose or install."""
    if arguments.name == INSTALL_EMBEDDED:
        services.terminal.line(services.models().install_embedded())
        return 0
    chosen = services.models().find(arguments.name) if arguments.name else services.models().chosen()
    if arguments.name:
        _write(chosen, services)
    if arguments.json:
        services.terminal.json(chosen)
    else:
        _print(chosen, services)
    return 0


def _write(chosen: Chosen, services: Services) -> None:
    editing = import_module(_EDITING)
    for key, value in (("provider", chosen.provider), ("name", chosen.model)):
        editing.set_value(services.profile, f"model.{key}", value)
        override = variable(("model", key))
        if override in services.environment:
            services.terminal.note(f"The environment variable {override} is set, and it wins over the file.")
    services.terminal.note(f"Written to {services.profile.config_file}; a running gateway takes it over at once.")


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
