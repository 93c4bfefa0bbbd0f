"""The hooks in the documentation work as described."""

import re
from pathlib import Path

import pytest
from tests.hooks.hook_folders import RecordedHook, write_hook

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "add-hooks.md"


def test_documented_hook_records_slow_and_failed_turns(tmp_path: Path) -> None:
    page = PAGE.read_text()
    manifests = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    (handler,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    folder = write_hook(tmp_path, "slow-turns", manifests[0], handler)
    hook = RecordedHook(tmp_path)
    assert hook.handled(session_id="s1", outcome="answered", seconds=3).trouble == ""
    assert hook.handled(session_id="s2", outcome="failed", seconds=3).trouble == ""
    assert hook.handled(session_id="s3", outcome="answered", seconds=90).trouble == ""
    lines = (folder / "turns.txt").read_text().splitlines()
    assert [line.split(" ", 2)[2] for line in lines] == ["failed after 3 s in s2", "answered after 90 s in s3"]


@pytest.mark.slow
def test_documented_command_hook_runs(tmp_path: Path) -> None:
    manifest = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)[1]
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    (bin_folder / "notify-send").write_text('#!/bin/sh\necho "$@"\n')
    (bin_folder / "notify-send").chmod(0o755)
    write_hook(tmp_path / "hooks", "desktop", manifest, handler="")
    hook = RecordedHook(tmp_path / "hooks", environment={"PATH": f"{bin_folder}:/usr/bin:/bin"})
    assert hook.handled(platform="matrix").output == "Talaria An answer is ready (matrix)"
