"""What we depend on: each with a reason, each pinned and hashed, none tied to a place it comes from."""

import re
import tomllib
from itertools import chain
from pathlib import Path

import pytest
from tests.house.tree import ROOT, files, name

LOCKS = [*files("requirements", suffix=".lock")]


def requirements(lock: Path) -> list[str]:
    """Return each requirement with the lines that continue it."""
    return [line for line in lock.read_text().replace("\\\n", " ").splitlines() if line and not line.startswith("#")]


@pytest.mark.parametrize("lock", LOCKS, ids=name)
def test_every_requirement_is_pinned_and_hashed(lock: Path) -> None:
    pinned = re.compile(r"[\w.\[\],-]+==\S+.*--hash=sha256:[0-9a-f]{64}")
    assert [line.split()[0] for line in requirements(lock) if not pinned.match(line)] == []


@pytest.mark.parametrize("lock", LOCKS, ids=name)
def test_a_lock_names_no_place_to_fetch_from(lock: Path) -> None:
    assert not re.search(r"://|--(extra-)?index-url|--find-links|--trusted-host", lock.read_text())


def test_every_dependency_says_why_it_is_here() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    project = tomllib.loads(text)["project"]
    wanted = [*project["dependencies"], *chain.from_iterable(project["optional-dependencies"].values())]
    reasons = {line for line in text.splitlines() if re.search(r"\s# \S", line)}
    unexplained = [
        one for one in wanted if not one.startswith(project["name"]) and not any(f'"{one}"' in line for line in reasons)
    ]
    assert unexplained == []


def test_the_base_install_has_at_most_25_packages() -> None:
    assert len(requirements(ROOT / "requirements" / "base.lock")) <= 25
