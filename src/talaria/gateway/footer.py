"""The line below a reply: model, context used, working directory, cost."""

import re
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from talaria.contracts.models import ModelInfo
from talaria.contracts.turn_log import ModelStep
from talaria.core.harmless import HARMFUL
from talaria.core.wording import money

_UNFIT = re.compile(rf"{HARMFUL}|[`\n]")


class Runtime(Struct, frozen=True, kw_only=True):
    """What a reply was made with; what is not known is left out."""

    model: str = ""
    context: int = 0
    context_limit: int = 0
    folder: Path | None = None
    cost_microdollars: int = 0


def runtime(steps: Sequence[ModelStep], model: str, info: ModelInfo, folder: Path) -> Runtime:
    """Return what a turn of these model calls was made with; ``model`` is the one that was to answer."""
    last = steps[-1] if steps else None
    return Runtime(
        model=last.model if last else model,
        context=last.context if last else 0,
        context_limit=info.context_limit if last and last.context else 0,
        folder=folder,
        cost_microdollars=sum(step.usage.cost_microdollars or 0 for step in steps),
    )


def footer(runtime: Runtime) -> str:
    """Return the line as Markdown; empty when nothing is known."""
    parts = [
        runtime.model,
        _context(runtime),
        _short(runtime.folder) if runtime.folder else "",
        money(runtime.cost_microdollars),
    ]
    return " · ".join(f"`{_UNFIT.sub('', part)}`" for part in parts if part)


def with_footer(text: str, runtime: Runtime) -> str:
    """Return a reply with the line below it."""
    line = footer(runtime)
    return f"{text}\n\n{line}" if line else text


def _context(runtime: Runtime) -> str:
    if not runtime.context_limit:
        return ""
    percent = round(100 * runtime.context / runtime.context_limit)
    limit = runtime.context_limit
    return f"{percent} % of {limit // 1000}k" if limit >= 1000 else f"{percent} % of {limit}"


def _short(folder: Path) -> str:
    home = Path.home()
    return f"~/{folder.relative_to(home)}".removesuffix("/.") if folder.is_relative_to(home) else str(folder)
