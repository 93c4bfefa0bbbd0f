"""`talaria models`: list usable models, or all known ones."""

import argparse
from typing import Any

from msgspec import Struct

from talaria.cli.services import Services
from talaria.contracts.provider import ChosenModel, ModelInfo, UsableModel
from talaria.core.errors import TalariaError
from talaria.core.formatting import pluralize

_NO_PRICES = {True: ("free", ""), False: ("", "")}


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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    parser.epilog = (
        "Prices are in dollars per million input and output tokens; without one, the price\n"
        "is unknown. Only models in the catalogue are shown; --all shows every model."
    )
    parser.add_argument("filter", nargs="?", metavar="TEXT", help="only models whose name contains this, known or not")
    parser.add_argument("--all", action="store_true", help="every model, including those of unconfigured providers")
    parser.add_argument("--local", action="store_true", help="only models on this machine")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace, services: Services) -> int:
    """Print the models, and the errors of providers that could not be queried."""
    model_service = services.models()
    in_use, reason = _find_model_in_use(services)
    listing = model_service.listing(local_only=arguments.local)
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
        [f"Not shown: {pluralize(hidden, 'model')} that the catalogue doesn't know; see --all."] if hidden > 0 else []
    )
    for sentence in (*listing.problems, *more, *reason):
        services.terminal.note(sentence)
    return 0


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
        return services.models().chosen(), []
    except TalariaError as error:
        return None, [str(error)]
