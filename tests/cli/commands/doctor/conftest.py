import os
from pathlib import Path

import pytest
from tests.app.program import Program

from talaria.settings.environment import process_environment


@pytest.fixture
def program(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Program:
    """The program on a machine with ripgrep; the doctor only checks whether the file exists."""
    tools = tmp_path_factory.mktemp("tools")
    (tools / "rg").touch(mode=0o755)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{process_environment()['PATH']}")
    return Program(tmp_path)
