"""Which models can be used here and now, and which one is."""

from msgspec import Struct

from talaria.contracts.models import ModelInfo


class Chosen(Struct, frozen=True):
    """The model that answers; ``why`` is a sentence, and ``limits`` another one where it can do little."""

    provider: str
    model: str
    info: ModelInfo
    why: str
    limits: str = ""


class Usable(Struct, frozen=True):
    """A model that could answer."""

    provider: str
    model: str
    info: ModelInfo
    local: bool = False


class Listing(Struct, frozen=True):
    """Every model that could answer, and a sentence for each provider that should be among them and is not."""

    models: tuple[Usable, ...]
    troubles: tuple[str, ...] = ()
