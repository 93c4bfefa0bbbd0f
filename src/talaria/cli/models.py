"""`talaria models`: the models that can be used now, and on request all that are known."""

import argparse
from typing import Any

from msgspec import Struct

from talaria.cli.services import Services
from talaria.contracts.models import Chosen, ModelInfo, Usable
from talaria.core.errors import TalariaError


class Row(Struct, frozen=True):
    """One model as it is shown; without a provider it cannot be used now."""

    provider: str
    info: ModelInfo
    local: bool = False
    in_use: bool = False

    def public(self) -> dict[str, Any]:
        """Everything, for JSON; prices are in millionths of a dollar for a million tokens."""
        fields = {name: getattr(self.info, name) for name in ModelInfo.__struct_fields__}
        state = {"usable": bool(self.provider), "local": self.local, "in_use": self.in_use}
        return {"provider": self.provider or None, **fields, **state}

    def cells(self) -> tuple[object, ...]:
        """The columns of the table."""
        info = self.info
        free = self.local or not info.known
        prices = ("", "") if free else (price(info.input_price), price(info.output_price))
        mark = "*" if self.in_use else ""
        return mark, self.provider or "-", info.name, f"{info.context_limit:,}", *prices, abilities(info)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Take what to list and how."""
    parser.epilog = (
        "Prices are in dollars for a million tokens, input and output. Of a provider's many\n"
        "models only those in the catalogue are shown, unless --all asks for every one."
    )
    parser.add_argument("--all", action="store_true", help="every model, also those without a configured provider")
    parser.add_argument("--local", action="store_true", help="only models on this machine")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace, services: Services) -> int:
    """Print the models, and beside them what kept a provider from telling its own."""
    desk = services.models()
    in_use, reason = _in_use(services)
    listing = desk.listing(local_only=arguments.local)
    rows = [_row(one, in_use) for one in listing.models]
    shown = rows if arguments.all else [row for row in rows if row.local or row.in_use or row.info.known]
    if arguments.all and not arguments.local:
        here = {row.info.name for row in rows}
        shown = [*rows, *(Row("", info) for info in desk.catalogue() if info.name not in here)]
    if arguments.json:
        services.terminal.json([row.public() for row in shown])
    elif shown:
        headers = ("", "PROVIDER", "MODEL", "CONTEXT", "IN", "OUT", "ABILITIES")
        services.terminal.table(headers, [row.cells() for row in shown])
    hidden = len(rows) - len(shown)
    more = [f"{hidden} more that are not in the catalogue; --all shows them."] if hidden > 0 else []
    for sentence in (*listing.troubles, *more, *reason):
        services.terminal.note(sentence)
    return 0


def price(microdollars: int) -> str:
    """Return what a million tokens cost, in dollars."""
    return f"${microdollars / 1_000_000:g}"


def abilities(info: ModelInfo) -> str:
    """Return what a model can do beside talking."""
    return ", ".join(name for name in ("tools", "images", "reasoning") if getattr(info, name))


def _row(one: Usable, in_use: Chosen | None) -> Row:
    is_used = in_use is not None and (one.provider, one.model) == (in_use.provider, in_use.model)
    return Row(one.provider, one.info, one.local, is_used)


def _in_use(services: Services) -> tuple[Chosen | None, list[str]]:
    try:
        return services.models().chosen(), []
    except TalariaError as error:
        return None, [str(error)]
