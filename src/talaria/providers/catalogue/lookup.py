"""Look up a model in the catalogue by any of its names."""

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import msgspec

from talaria.contracts.provider import ModelInfo

AS_OF = "2026-11"

_FILE = Path(__file__).with_name("models.txt")
_FAMILY = "*"
_DASHES = str.maketrans(".:@_", "----")
_SAME_MODEL = frozenset(
    {
        "latest",
        "preview",
        "beta",
        "exp",
        "free",
        "instruct",
        "chat",
        "it",
        "versatile",
        "instant",
        "k",
        "m",
        "s",
        "fp16",
    }
)
_LETTERS_OF_SIZES = "abeqvx"


class Catalogue:
    """Well-known models; the file is read at the first lookup."""

    def find(self, name: str) -> ModelInfo:
        """Return the properties of model ``name``, under that name.

        A prefix like ``openai/`` is ignored, as are dots instead of dashes, and a date or a size at the end. Unknown
        members of a family are assumed to be like it, and other models to be small; both with ``known`` false.
        """
        model_name = name.lower().rpartition("/")[2]
        found = (
            self._models.get(_normalize_dashes(model_name))
            or self._find_by_prefix(model_name)
            or self._find_family(model_name)
        )
        return msgspec.structs.replace(found or ModelInfo(name=name, known=False), name=name)

    def all(self) -> tuple[ModelInfo, ...]:
        """Return every listed model by its own name, grouped by maker."""
        return tuple(self._models.values())

    @cached_property
    def _listed(self) -> list[ModelInfo]:
        lines = _FILE.read_text(encoding="utf-8").splitlines()
        return [_read(line) for line in lines if line and not line.startswith("#")]

    @cached_property
    def _models(self) -> dict[str, ModelInfo]:
        return {_normalize_dashes(info.name): info for info in self._listed if info.known}

    def _find_by_prefix(self, model_name: str) -> ModelInfo | None:
        """Return the model with the longest name that is a prefix of this one."""
        for end in _iterate_part_ends(model_name):
            found = self._models.get(_normalize_dashes(model_name[:end]))
            if found is not None and model_name[end] != ".":  # a dot starts another version
                return msgspec.structs.replace(found, known=_is_same_model(model_name[end + 1 :]))
        return None

    def _find_family(self, model_name: str) -> ModelInfo | None:
        plain = _normalize_dashes(model_name)
        families = [info for info in self._listed if not info.known and plain.startswith(_normalize_dashes(info.name))]
        return max(families, key=lambda info: len(info.name), default=None)


def _is_same_model(suffix: str) -> bool:
    """Return whether the rest of a name is only a date, a size or a synonym."""
    parts = _normalize_dashes(suffix).split("-")
    return all(part in _SAME_MODEL or part.strip(_LETTERS_OF_SIZES).isdecimal() for part in parts)


def _iterate_part_ends(name: str) -> Iterator[int]:
    """Yield the ends of the parts of a name, last first."""
    return (index for index in range(len(name) - 1, 0, -1) if name[index] in "-:@.")


def _normalize_dashes(name: str) -> str:
    return name.translate(_DASHES)


def _read(line: str) -> ModelInfo:
    name, context, output, in_, out, read, write, can = line.split()
    return ModelInfo(
        name=name.removesuffix(_FAMILY),
        context_limit=int(context),
        output_limit=int(output),
        input_price=_parse_microdollars(in_) or 0,
        output_price=_parse_microdollars(out) or 0,
        cache_read_price=_parse_microdollars(read),
        cache_write_price=_parse_microdollars(write),
        tools="t" in can,
        images="i" in can,
        reasoning="r" in can,
        known=not name.endswith(_FAMILY),
    )


def _parse_microdollars(dollars: str) -> int | None:
    if dollars == "-":
        return None
    whole, _, fraction = dollars.partition(".")
    return int(whole + f"{fraction:0<6}")
