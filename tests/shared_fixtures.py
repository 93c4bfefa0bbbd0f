"""Fixtures that the tests of one folder share, released when a worker leaves the folder, not at the end of the run."""

from pathlib import Path

import pytest


def finish_fixtures(item: pytest.Item, nextitem: pytest.Item | None, folder: Path, *names: str) -> None:
    """Finish session fixtures unless the next test is in their folder too; a later test sets them up again."""
    if nextitem is not None and nextitem.path.is_relative_to(folder):
        return
    for name in names:
        for fixture in item.session._fixturemanager.getfixturedefs(name, item) or ():  # noqa: SLF001 (theirs)
            fixture.finish(item._request)  # type: ignore[attr-defined] # noqa: SLF001 (theirs)
