"""Parser for goals as a person types them: the goal, contract lines and a budget."""

import re

from msgspec import Struct, structs

from talaria.core.errors import Refused
from talaria.goals.goal import Allowance, GoalContract

_LABELS = {
    "verify": "verify",
    "constraint": "constraints",
    "constraints": "constraints",
    "scope": "scope",
    "stop when": "stop_when",
    "budget": "budget",
}
_LABEL_LINE = re.compile(rf"\s*({'|'.join(_LABELS)})\s*:\s*(.*)", re.IGNORECASE | re.DOTALL)
# A bar separates parts only before a label, because commands may contain bars too.
_BAR = re.compile(rf"(?<!\s)\s+\|\s+(?=(?:{'|'.join(_LABELS)})\s*:)", re.IGNORECASE)
_AMOUNT = re.compile(r"(\$?)\s*(\d[\d_]*(?:\.\d+)?)\s*([km]?)\s*(turns?|tokens?|\$|dollars?|usd|[a-z]*)", re.IGNORECASE)
_FACTORS = {"": 1, "k": 1_000, "m": 1_000_000}
_SECONDS = {"s": 1, "sec": 1, "m": 60, "min": 60, "minute": 60, "h": 3_600, "hour": 3_600, "d": 86_400, "day": 86_400}
_MAX_AMOUNT = 10**15
_MAX_LENGTH = 20_000


class GoalRequest(Struct, frozen=True):
    """A parsed goal: its text, contract and allowance."""

    goal: str
    contract: GoalContract
    allowance: Allowance


def parse_goal(text: str, default: Allowance) -> GoalRequest:
    """Parse a goal; raises `Refused` if it has no text, is too long or has an invalid budget.

    A line that begins with ``verify:``, ``constraints:``, ``scope:``, ``stop when:`` or ``budget:`` belongs to the
    contract. Within a line, a bar with a space on either side separates them.
    """
    if len(text) > _MAX_LENGTH:
        raise Refused(f"A goal may have at most {_MAX_LENGTH:,} characters. Put the details in a file and name it.")
    goal: list[str] = []
    found: dict[str, list[str]] = {}
    for line in _BAR.sub("\n", text.strip()).splitlines():
        labelled = _LABEL_LINE.fullmatch(line)
        if labelled is None:
            goal.append(line)
        else:
            found.setdefault(_LABELS[labelled[1].lower()], []).append(labelled[2].strip())
    goal_text = "\n".join(goal).strip()
    if not goal_text:
        raise Refused("Say what the goal is: `/goal <text>`.")
    allowance = default
    for line in found.pop("budget", []):
        allowance = parse_budget(line, allowance)
    contract = GoalContract(
        **{name: (" && " if name == "verify" else "\n").join(lines) for name, lines in found.items()}
    )
    return GoalRequest(goal_text, contract, allowance)


def parse_budget(text: str, default: Allowance) -> Allowance:
    """Return the allowance with the limits of a text like ``30 turns, 200k tokens, $2, 2h``.

    Limits that are not named keep their default. Raises `Refused` for amounts that cannot be parsed.
    """
    allowance = default
    for item in filter(None, (part.strip() for part in re.split(r",(?!\d)|;|\band\b", text))):
        amount = _AMOUNT.fullmatch(item.replace(",", ""))
        changes = _parse_amount(*amount.groups()) if amount else None
        if not changes or not all(changes.values()):
            raise Refused(f"I don't understand the budget `{item}`. Write it like `30 turns, 200k tokens, $2, 2h`.")
        allowance = structs.replace(allowance, **changes)
    return allowance


def _parse_amount(sign: str, number: str, factor: str, unit: str) -> dict[str, int] | None:
    """Return the limit that an amount sets, and its value; ``None`` for an unknown unit."""
    value, unit = float(number.replace("_", "")), unit.lower()
    noun = unit.removesuffix("s") or unit
    scaled = min(value * _FACTORS[factor.lower()], _MAX_AMOUNT)
    if sign or unit in {"$", "usd", "dollar", "dollars"}:
        return {"microdollars": round(scaled * 1_000_000)} if unit in {"", "$", "usd", "dollar", "dollars"} else None
    if noun in {"turn", "token"}:
        return {f"{noun}s": round(scaled)}
    time = (factor + unit).lower()
    length = _SECONDS.get(time) or _SECONDS.get(time.removesuffix("s"))
    return {"seconds": round(min(value, _MAX_AMOUNT) * length)} if length else None
