"""Stores that a gateway is tested on."""

from pathlib import Path

import pytest
from tests.storage.engines import StoreLocation


@pytest.fixture(params=["sqlite", "postgres"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> StoreLocation:
    """The store of a program whose home is ``tmp_path``: a SQLite file, or a PostgreSQL schema."""
    if request.param == "sqlite":
        return StoreLocation("sqlite", str(tmp_path / "profiles" / "default" / "talaria.db"))
    store_location: StoreLocation = request.getfixturevalue("postgres_location")
    return store_location
