"""Dependencies: each with a reason, pinned and hashed, and not tied to a package index."""

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
def test_lock_file_names_no_package_index(lock: Path) -> None:
    assert not re.search(r"://|--(extra-)?index-url|--find-links|--trusted-host", lock.read_text())


def test_every_dependency_has_a_comment_with_its_reason() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    project = tomllib.loads(text)["project"]
    dependencies = [*project["dependencies"], *chain.from_iterable(project["optional-dependencies"].values())]
    reasons = {line for line in text.splitlines() if re.search(r"\s# \S", line)}
    unexplained = [
        one
        for one in dependencies
        if not one.startswith(project["name"]) and not any(f'"{one}"' in line for line in reasons)
    ]
    assert unexplained == []


def test_the_base_install_has_at_most_25_packages() -> None:
    assert len(requirements(ROOT / "requirements" / "base.lock")) <= 25
