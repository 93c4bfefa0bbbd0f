"""`talaria model` and `talaria models`: show, test and choose the model, install the built-in one, list models."""

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from msgspec import Struct, structs

from talaria.cli.services import ModelService, Services, note_gateway_reload
from talaria.cli.terminal import Terminal
from talaria.contracts.provider import ChosenModel, ModelInfo, UsableModel
from talaria.core.errors import ProviderError, TalariaError
from talaria.core.formatting import pluralize

_NO_PRICES = {True: ("free", ""), False: ("", "")}
INSTALL_EMBEDDED = "install-embedded"
_ANSWER_SECONDS = 30.0
_EPILOG = f"""\
Without a name, it shows the configured model and checks that it answers; on a
terminal it then offers the others. NAME may be an alias of `model.aliases`.
`talaria models` lists the available models. To let Talaria choose again, run
`talaria config unset model.provider`.

  talaria model anthropic:claude-opus-5-5
  talaria model ollama
  talaria model {INSTALL_EMBEDDED}    the built-in model that needs no key (130 MB)
"""
_SHOWN = 15
_PROMPT = "Number to choose, text to filter, Enter to keep the current model: "


class ModelCommand:
    """`talaria model`: show and test the configured model, choose another, install the built-in one."""

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        """Take the name of a model."""
        parser.epilog = _EPILOG
        parser.add_argument(
            "name", nargs="?", metavar="NAME", help=f"MODEL, PROVIDER:MODEL, PROVIDER, or {INSTALL_EMBEDDED}"
        )
        parser.add_argument("--offline", action="store_true", help="don't contact the provider")
        parser.add_argument("--json", action="store_true", help="print JSON")

    @staticmethod
    def run(arguments: argparse.Namespace, services: Services) -> int:
        """Show, choose or install a model and return the exit code."""
        if arguments.name == INSTALL_EMBEDDED:
            services.terminal.line(services.models().install_embedded(services.terminal.note))
            return 0
        model_service = services.models()
        chosen = model_service.find(arguments.name) if arguments.name else model_service.resolve_default_model()
        if arguments.name:
            _write_choice(chosen, services)
        should_check = not (arguments.name or arguments.offline or chosen.limits)  # `find` has asked already
        problem = _find_problem(chosen, model_service) if should_check else ""
        if arguments.json:
            answers = not problem if should_check else None
            services.terminal.json({**structs.asdict(chosen), "answers": answers, "problem": problem or None})
            return 0
        _print_chosen(chosen, services)
        if problem:
            services.terminal.line(services.terminal.style(f"It isn't answering. {problem}", "yellow"))
        elif should_check:
            services.terminal.line("It answers.")
        if services.terminal.interactive and not (arguments.name or arguments.offline):
            _choose_another(chosen, services)
        return 0


class ModelsCommand:
    """`talaria models`: list usable models, or all known ones."""

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        """Describe the options."""
        parser.epilog = (
            "Prices are in dollars per million input and output tokens; without one, the price\n"
            "is unknown. Only models in the catalogue are shown; --all shows every model."
        )
        parser.add_argument(
            "filter", nargs="?", metavar="TEXT", help="only models whose name contains this, known or not"
        )
        parser.add_argument("--all", action="store_true", help="every model, including those of unconfigured providers")
        parser.add_argument("--local", action="store_true", help="only models on this machine")
        parser.add_argument("--json", action="store_true", help="print JSON")

    @staticmethod
    def run(arguments: argparse.Namespace, services: Services) -> int:
        """Print the models, and the errors of providers that could not be queried."""
        model_service = services.models()
        in_use, reason = _find_model_in_use(services)
        listing = model_service.list_models(local_only=arguments.local)
        rows = [_build_row(one, in_use) for one in listing.models]
        shows_all = arguments.all or bool(arguments.filter)
        shown = rows if shows_all else [row for row in rows if row.local or row.in_use or row.info.known]
        if arguments.all and not arguments.local:
            here = {row.info.name for row in rows}
            shown = [*rows, *(ModelRow("", info) for info in model_service.catalogue() if info.name not in here)]
        if arguments.filter:
            shown = [row for row in shown if arguments.filter.lower() in f"{row.provider}:{row.info.name}".lower()]
            rows = shown
        if arguments.json:
            services.terminal.json([row.public() for row in shown])
        elif shown:
            headers = ("", "PROVIDER", "MODEL", "CONTEXT", "IN", "OUT", "ABILITIES")
            services.terminal.table(headers, [row.cells() for row in shown])
        hidden = len(rows) - len(shown)
        more = (
            [f"Not shown: {pluralize(hidden, 'model')} that the catalogue doesn't know; see --all."]
            if hidden > 0
            else []
        )
        for sentence in (*listing.problems, *more, *reason):
            services.terminal.note(sentence)
        return 0


class ModelRow(Struct, frozen=True):
    """Model as displayed; without a provider it cannot be used now."""

    provider: str
    info: ModelInfo
    local: bool = False
    in_use: bool = False

    def public(self) -> dict[str, Any]:
        """All fields for JSON; prices are in microdollars per million tokens."""
        fields = {name: getattr(self.info, name) for name in ModelInfo.__struct_fields__}
        state = {"usable": bool(self.provider), "local": self.local, "in_use": self.in_use}
        return {"provider": self.provider or None, **fields, **state}

    def cells(self) -> tuple[object, ...]:
        """Columns of the table."""
        info = self.info
        is_priced = info.has_price and not info.free
        prices = (
            (format_price(info.input_price), format_price(info.output_price)) if is_priced else _NO_PRICES[info.free]
        )
        mark = "*" if self.in_use else ""
        return mark, self.provider or "-", info.name, f"{info.context_limit:,}", *prices, list_abilities(info)


def pick_model(terminal: Terminal, models: Sequence[UsableModel], current: ChosenModel) -> UsableModel | None:
    """Return the model that the user picks; ``None`` if they keep the current one."""
    others = [one for one in models if (one.provider, one.model) != (current.provider, current.model)]
    matches = list(others)
    while matches:
        _print_numbered(terminal, matches)
        terminal.prompt(_PROMPT)
        typed = sys.stdin.readline().strip()
        if not typed:
            return None
        if typed.isdecimal() and 1 <= int(typed) <= min(len(matches), _SHOWN):
            return matches[int(typed) - 1]
        found = filter_models(others, typed)
        if len(found) == 1:
            return found[0]
        if not found:
            terminal.line(f"No model has `{typed}` in its name.")
        matches = found or matches
    return None


def filter_models(models: Sequence[UsableModel], text: str) -> list[UsableModel]:
    """Return the models whose names contain every word of a text; one with exactly this name alone."""
    words = text.lower().split()
    exact = [one for one in models if text in (one.model, f"{one.provider}:{one.model}")]
    return exact or [one for one in models if all(word in f"{one.provider}:{one.model}".lower() for word in words)]


def format_price(microdollars: int) -> str:
    """Return the price of a million tokens, in dollars."""
    return f"${microdollars / 1_000_000:g}"


def list_abilities(info: ModelInfo) -> str:
    """Return what a model supports in addition to text."""
    return ", ".join(name for name in ("tools", "images", "reasoning") if getattr(info, name))


def _build_row(one: UsableModel, in_use: ChosenModel | None) -> ModelRow:
    is_used = in_use is not None and (one.provider, one.model) == (in_use.provider, in_use.model)
    return ModelRow(one.provider, one.info, one.local, is_used)


def _find_model_in_use(services: Services) -> tuple[ChosenModel | None, list[str]]:
    try:
        return services.models().resolve_default_model(), []
    except TalariaError as error:
        return None, [str(error)]


def _choose_another(current: ChosenModel, services: Services) -> None:
    """Offer all usable models, and write the one that is picked."""
    listing = services.models().list_models()
    for problem in listing.problems:
        services.terminal.note(problem)
    picked = pick_model(services.terminal, listing.models, current)
    if picked is not None:
        chosen = services.models().find(f"{picked.provider}:{picked.model}")
        _write_choice(chosen, services)
        services.terminal.line(f"Talaria now uses {chosen.provider}:{chosen.model}.")


def _find_problem(chosen: ChosenModel, model_service: ModelService) -> str:
    try:
        model_service.ask(chosen, _ANSWER_SECONDS)
    except ProviderError as error:
        return error.for_owner
    except TimeoutError:
        return f"It sent no answer within {_ANSWER_SECONDS:g} s."
    return ""


def _write_choice(chosen: ChosenModel, services: Services) -> None:
    from talaria.settings.config_writer import ConfigWriter, use_model  # noqa: PLC0415 (loaded for a change)

    writer = ConfigWriter(services.profile, services.environment)
    use_model(writer, chosen.provider, chosen.model)
    for note in writer.notes:
        services.terminal.note(note)
    services.terminal.note(f"Saved in {services.profile.config_file}.")
    note_gateway_reload(services, live=True)


def _print_chosen(chosen: ChosenModel, services: Services) -> None:
    info, terminal = chosen.info, services.terminal
    terminal.line(terminal.style(f"{chosen.provider}:{chosen.model}", "bold"))
    terminal.line(chosen.why)
    facts = [f"{info.context_limit:,} tokens of context", list_abilities(info) or "chat only"]
    is_guess = not info.known and not info.has_price
    facts.append(
        f"{info.describe_price()} per million tokens" if info.has_price and not info.free else info.describe_price()
    )
    if is_guess:
        facts.append("not in the catalogue, so these are cautious guesses")
    terminal.line("; ".join(facts) + ".")
    if chosen.limits:
        terminal.line(chosen.limits)


def _print_numbered(terminal: Terminal, models: Sequence[UsableModel]) -> None:
    rows = [
        (number, f"{one.provider}:{one.model}", f"{one.info.context_limit:,} tokens", one.info.describe_price())
        for number, one in enumerate(models[:_SHOWN], 1)
    ]
    terminal.table(("", "MODEL", "CONTEXT", "PRICE"), rows)
    if len(models) > _SHOWN:
        terminal.line(f"and {len(models) - _SHOWN:,} more; type a part of a name.")
