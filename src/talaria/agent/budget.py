"""What model calls may cost beyond one turn: set aside before a call, settled behind it."""

from typing import Protocol

from talaria.contracts.models import ModelInfo
from talaria.contracts.provider import ModelRequest
from talaria.contracts.stores.ledger import Hold

_BYTES_PER_TOKEN = 3
_MILLION = 1_000_000


class Budget(Protocol):
    """The caps that a turn is under: of everything, of a person, a session, a goal, a job."""

    async def reserve(self, amount: int) -> Hold | None:
        """Set an amount aside, in millionths of a dollar, or raise `OverBudget`."""

    async def settle(self, hold: Hold | None, spent: int) -> None:
        """Put what was really spent in the place of a hold."""


class Unlimited:
    """Implements `Budget` where nothing is capped."""

    async def reserve(self, amount: int) -> Hold | None:
        """Set nothing aside."""
        return None

    async def settle(self, hold: Hold | None, spent: int) -> None:
        """Keep no account."""


def most_it_can_cost(request: ModelRequest, info: ModelInfo, shown: int) -> int:
    """Return what a call costs at the most when ``shown`` tokens of conversation go in."""
    fixed = (len(request.system) + sum(len(bytes(tool.parameters)) for tool in request.tools)) // _BYTES_PER_TOKEN
    output = info.output_limit if request.max_output_tokens is None else request.max_output_tokens
    return ((shown + fixed) * info.input_price + output * info.output_price) // _MILLION + 1
