"""Read a goal as a person types it: the goal itself, lines of its contract, and its budget."""

import re

from msgspec import Struct, structs

from talaria.core.errors import Refused
from talaria.goals.goal import Allowance, Contract

_LABELS = {
    "verify": "verify",
    "constraint": "constraints",
    "constraints": "constraints",
    "scope": "scope",
    "stop when": "stop_when",
    "budget": "budget",
}
_LABELLED = re.compile(rf"\s*({'|'.join(_LABELS)})\s*:\s*(.*)", re.IGNORECASE | re.DOTALL)
# A bar divides only where a label follows it: it may also stand in a command.
_BAR = re.compile(rf"(?<!\s)\s+\|\s+(?=(?:{'|'.join(_LABELS)})\s*:)", re.IGNORECASE)
_AMOUNT = re.compile(r"(\$?)\s*(\d[\d_]*(?:\.\d+)?)\s*([km]?)\s*(turns?|tokens?|\$|dollars?|usd|[a-z]*)", re.IGNORECASE)
_FACTORS = {"": 1, "k": 1_000, "m": 1_000_000}
_SECONDS = {"s": 1, "sec": 1, "m": 60, "min": 60, "minute": 60, "h": 3_600, "hour": 3_600, "d": 86_400, "day": 86_400}
_MOST = 10**15
_LONGEST = 20_000


class Wish(Struct, frozen=True):
    """A goal as it was typed, taken apart."""

    goal: str
    contract: Contract
    allowance: Allowance


def read_wish(text: str, usual: Allowance) -> Wish:
    """Return what a person wants; raises `Refused` where there is no goal in it, or a budget that nobody understands.

    A line that begins with ``verify:``, ``constraints:``, ``scope:``, ``stop when:`` or ``budget:`` belongs to the
    contract. On one line `` | `` stands between them.
    """
    if len(text) > _LONGEST:
        raise Refused(f"A goal has at most {_LONGEST:,} characters: write the rest into a file, and name that.")
    goal: list[str] = []
    found: dict[str, list[str]] = {}
    for line in _BAR.sub("\n", text.strip()).splitlines():
        labelled = _LABELLED.fullmatch(line)
        if labelled is None:
            goal.append(line)
        else:
            found.setdefault(_LABELS[labelled[1].lower()], []).append(labelled[2].strip())
    wanted = "\n".join(goal).strip()
    if not wanted:
        raise Refused("A goal needs words: `/goal <what is to be reached>`.")
    allowance = usual
    for line in found.pop("budget", []):
        allowance = read_budget(line, allowance)
    contract = Contract(**{name: (" && " if name == "verify" else "\n").join(lines) for name, lines in found.items()})
    return Wish(wanted, contract, allowance)


def read_budget(text: str, usual: Allowance) -> Allowance:
    """Return an allowance with what ``30 turns, 200k tokens, $2, 2h`` says; the rest is as usual."""
    allowance = usual
    for item in filter(None, (part.strip() for part in re.split(r",(?!\d)|;|\band\b", text))):
        amount = _AMOUNT.fullmatch(item.replace(",", ""))
        changes = _changes(*amount.groups()) if amount else None
        if not changes or not all(changes.values()):
            raise Refused(
                f"I do not understand the budget `{item}`: write for example `30 turns, 200k tokens, $2, 2h`."
            )
        allowance = structs.replace(allowance, **changes)
    return allowance


def _changes(sign: str, number: str, factor: str, unit: str) -> dict[str, int] | None:
    """Return which limit an amount is meant for, and its value."""
    value, unit = float(number.replace("_", "")), unit.lower()
    counted = unit.removesuffix("s") or unit
    scaled = min(value * _FACTORS[factor.lower()], _MOST)
    if sign or unit in {"$", "usd", "dollar", "dollars"}:
        return {"microdollars": round(scaled * 1_000_000)} if unit in {"", "$", "usd", "dollar", "dollars"} else None
    if counted in {"turn", "token"}:
        return {f"{counted}s": round(scaled)}
    time = (factor + unit).lower()
    length = _SECONDS.get(time) or _SECONDS.get(time.removesuffix("s"))
    return {"seconds": round(min(value, _MOST) * length)} if length else None
