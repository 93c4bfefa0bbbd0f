"""Sizes and prices that providers list for their own models, cached in a small file of the profile."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

import msgspec
from msgspec import Struct

from talaria.contracts.provider import ListedModel, ModelInfo

MAX_AGE = timedelta(days=1)
_FILE = "model-lists.json"


class _ProviderList(Struct, frozen=True):
    at: datetime
    models: dict[str, ListedModel]


class ListedModels:
    """Lists of models by provider; a lost file costs a request."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / _FILE
        self._lists: dict[str, _ProviderList] | None = None

    def get(self, provider: str, model: str) -> ListedModel | None:
        """Return what a provider says about a model, if it says anything."""
        found = self._read().get(provider)
        return found.models.get(model) if found else None

    def first(self, provider: str, now: datetime) -> str:
        """Return the first model of a provider's list, empty if the list is missing or old."""
        return next(iter(self._read()[provider].models), "") if self.is_current(provider, now) else ""

    def is_current(self, provider: str, now: datetime) -> bool:
        """Return whether the list of a provider is less than a day old."""
        found = self._read().get(provider)
        return found is not None and now - found.at < MAX_AGE

    def put(self, provider: str, models: Iterable[ListedModel], now: datetime) -> None:
        """Store the list of a provider, as far as it says more than names."""
        useful = {one.name: one for one in models if one.has_facts}
        before = self._read().get(provider)
        if before is not None and before.models == useful and now - before.at < MAX_AGE:
            return
        if not useful and before is None:
            return
        self._lists = {**self._read(), provider: _ProviderList(now, useful)}
        with suppress(OSError):
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            draft = self._file.with_suffix(".part")
            draft.write_bytes(msgspec.json.encode(self._lists))
            draft.replace(self._file)

    def _read(self) -> Mapping[str, _ProviderList]:
        if self._lists is None:
            try:
                self._lists = msgspec.json.decode(self._file.read_bytes(), type=dict[str, _ProviderList])
            except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
                self._lists = {}
        return self._lists


def apply_listed(info: ModelInfo, listed: ListedModel) -> ModelInfo:
    """Return a model that the catalogue doesn't know, with what its provider lists."""
    changes: dict[str, int | bool] = {}
    if not info.known and listed.context_limit:
        changes["context_limit"] = listed.context_limit
    if not info.free and listed.input_price is not None and listed.output_price is not None:
        for name in ("input_price", "output_price", "cache_read_price", "cache_write_price"):
            if (price := getattr(listed, name)) is not None:
                changes[name] = price
        changes["free"] = not (listed.input_price or listed.output_price)
    return msgspec.structs.replace(info, **changes) if changes else info
