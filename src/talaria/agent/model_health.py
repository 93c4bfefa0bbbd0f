"""Which models cannot answer at the moment, as those who ask them notice."""

from datetime import datetime

from msgspec import Struct, structs

from talaria.agent.model_calls import ModelChoice
from talaria.contracts.clock import Clock, SystemClock
from talaria.core.errors import ProviderError


class ModelState(Struct, frozen=True):
    """How a model was doing when it was last asked; without an ``error`` it answered.

    ``since`` is when it first failed in a row, ``failures`` are all that there ever were.
    """

    model: str
    error: str = ""
    since: datetime | None = None
    failures: int = 0


class ModelHealth:
    """Remembers what became of the last call to each model; shared by all conversations of a process."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._states: dict[str, ModelState] = {}

    @property
    def states(self) -> list[ModelState]:
        """Every model that was asked, by name."""
        return [self._states[name] for name in sorted(self._states)]

    def heard(self, choice: ModelChoice, error: ProviderError | None) -> None:
        """Take note of an answer, or of why there was none."""
        name = f"{choice.provider.name}:{choice.model}"
        before = self._states.get(name, ModelState(name))
        if error is None:
            self._states[name] = structs.replace(before, error="", since=None)
        else:
            self._states[name] = ModelState(
                name, str(error) or error.public, before.since or self._clock.now(), before.failures + 1
            )
