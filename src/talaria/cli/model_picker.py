"""Model picker for line-based terminals: a list that typed text narrows, with size and price."""

import sys
from collections.abc import Sequence

from talaria.cli.output.terminal import Terminal
from talaria.contracts.provider import ChosenModel, UsableModel

_SHOWN = 15
_PROMPT = "Number to choose, text to filter, Enter to keep the current model: "


def pick_model(terminal: Terminal, models: Sequence[UsableModel], current: ChosenModel) -> UsableModel | None:
    """Return the model that the user picks; ``None`` if they keep the current one."""
    others = [one for one in models if (one.provider, one.model) != (current.provider, current.model)]
    matches = list(others)
    while matches:
        _show(terminal, matches)
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


def _show(terminal: Terminal, models: Sequence[UsableModel]) -> None:
    rows = [
        (number, f"{one.provider}:{one.model}", f"{one.info.context_limit:,} tokens", one.info.describe_price())
        for number, one in enumerate(models[:_SHOWN], 1)
    ]
    terminal.table(("", "MODEL", "CONTEXT", "PRICE"), rows)
    if len(models) > _SHOWN:
        terminal.line(f"and {len(models) - _SHOWN:,} more; type a part of a name.")
