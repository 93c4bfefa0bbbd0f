"""Stores that a gateway is tested on."""

from pathlib import Path

import pytest
from tests.storage.engines import Place


@pytest.fixture(params=["sqlite", "postgres"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """The store of a program whose home is ``tmp_path``: a SQLite file, or a PostgreSQL schema."""
    if request.param == "sqlite":
        return Place("sqlite", str(tmp_path / "profiles" / "default" / "talaria.db"))
    place: Place = request.getfixturevalue("postgres_place")
    return place
