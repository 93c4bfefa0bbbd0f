"""What a method of the Bot API is: a name, what it takes, and what it does."""

from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Any

from msgspec import Struct

from talaria.testing.telegram_server.checks import Parameters, Raw, read_parameters
from talaria.testing.telegram_server.world import World

Work = Callable[[World, Any], object | Awaitable[object]]


class Method(Struct, frozen=True):
    """One method; ``work`` gets the parameters once they have been checked."""

    name: str
    parameters: type[Parameters]
    work: Work

    async def call(self, world: World, raw: Raw) -> object:
        """Check the parameters, do the work and return the result for the wire."""
        result = self.work(world, read_parameters(self.parameters, raw))
        return await result if isawaitable(result) else result
