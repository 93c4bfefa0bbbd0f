"""The stores that a gateway is tried on, each with a program of its own."""

from pathlib import Path

import pytest
from tests.storage.engines import Place


@pytest.fixture(params=["sqlite", "postgres"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Where a program whose home is ``tmp_path`` keeps everything: its file, or a schema of a server."""
    if request.param == "sqlite":
        return Place("sqlite", str(tmp_path / "profiles" / "default" / "talaria.db"))
    place: Place = request.getfixturevalue("postgres_place")
    return place
