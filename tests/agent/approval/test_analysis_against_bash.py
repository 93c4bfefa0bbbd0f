"""The shell examiner against bash: each generated command that bash runs was found or needs approval."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.agent.approval.shell_corpus import MARKERS, ShellCorpus

from talaria.agent.approval.paths import PathRules
from talaria.agent.approval.shell_analysis import ShellExamination
from talaria.agent.approval.shell_state import FOUND, ITEMS, NAME, UNKNOWN, SimpleCommand

BATCHES, LONG_BATCHES = 12, 24
BATCH = 100
_END, _BETWEEN = "\x1e", "\x1f"
_MARKER = f"""#!/bin/sh
first=$1
line=${{0##*/}}
for word; do line=$line{_BETWEEN}$word; done
printf '%s{_END}' "$line" >>"$MARKS"
echo "$first"
"""
# Markers are functions too, which need no process; `env`, `xargs` and others run the programs.
_DRIVER = f"""
marker() {{
    local line=${{FUNCNAME[0]}} word
    for word; do line+=$'\\x1f'$word; done
    printf '%s{_END}' "$line" >>"$MARKS"
    echo "$1"
}}
body=$(declare -f marker)
for name in {" ".join(MARKERS)} mark9; do
    eval "${{body/marker/$name}}"
    export -f "$name"
done
unset -f marker
for code in "$1"/*.code; do
    (cd "$code.folder" && export MARKS="$code.marks" && eval "$(<"$code")") </dev/null >/dev/null 2>&1
done
wait
"""
_REAL = ("bash", "sh", "env", "timeout", "nice", "nohup", "setsid", "stdbuf", "xargs", "find", "cat", "mkdir")

needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="There is no bash on this machine.")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Generate twice as much code in a long run."""
    if "batch" in metafunc.fixturenames:
        metafunc.parametrize("batch", range(LONG_BATCHES if metafunc.config.getoption("long") else BATCHES))


@needs_bash
def test_examiner_finds_every_command_that_bash_runs(tmp_path: Path, batch: int) -> None:
    programs = marker_programs(tmp_path / "bin")
    codes = {f"{number:04}": ShellCorpus(batch * BATCH + number).line() for number in range(BATCH)}
    home = tmp_path / "home"
    ran = run_by_bash(codes, tmp_path / "codes", programs, home)
    missed = {
        codes[name]: missing
        for name, commands in ran.items()
        if (missing := unseen(codes[name], commands, tmp_path, home))
    }
    assert missed == {}
    assert sum(map(len, ran.values())) > BATCH


def marker_programs(folder: Path) -> Path:
    folder.mkdir()
    for name in (*MARKERS, "mark9"):
        (folder / name).write_text(_MARKER)
        (folder / name).chmod(0o755)
    for name in _REAL:
        if found := shutil.which("bash" if name == "sh" else name):
            (folder / name).symlink_to(found)
    return folder


def run_by_bash(codes: dict[str, str], folder: Path, programs: Path, home: Path) -> dict[str, list[list[str]]]:
    folder.mkdir()
    home.mkdir()
    for name, code in codes.items():
        (folder / f"{name}.code").write_text(code)
        (folder / f"{name}.code.folder").mkdir()
    environment = {"PATH": str(programs), "HOME": str(home)}
    driver = [shutil.which("bash") or "bash", "--noprofile", "--norc", "-c", _DRIVER, "driver", str(folder)]
    subprocess.run(driver, env=environment, cwd=folder, timeout=300, check=False, start_new_session=True)
    return {name: marks_in(folder / f"{name}.code.marks") for name in codes}


def marks_in(path: Path) -> list[list[str]]:
    text = path.read_text(errors="replace") if path.exists() else ""
    return [entry.split(_BETWEEN) for entry in text.split(_END) if entry]


def unseen(code: str, ran: list[list[str]], folder: Path, home: Path) -> list[list[str]]:
    """Return the commands that bash ran and the examiner neither found nor asks about."""
    examination = ShellExamination(PathRules(folder, home), {"HOME": str(home)})
    examination.examine(code)
    if any(danger.kind == "code" for danger in examination.found):
        return []
    seen = [pattern_of(command) for command in examination.commands]
    return [command for command in ran if not any(one.fullmatch(_BETWEEN.join(command)) for one in seen)]


def pattern_of(command: SimpleCommand) -> re.Pattern[str]:
    """Return a pattern of the arguments that a command can have; a loose word can be none or several."""
    patterns = ""
    for index, word in enumerate(command.words):
        for text in word.text.split(ITEMS):
            pattern = ("" if index == 0 else _BETWEEN) + re.escape(text)
            pattern = re.sub(f"{re.escape(UNKNOWN)}|{FOUND}", "(?s:.*)", pattern).replace(NAME, f"[^{_BETWEEN}/]*")
            patterns += f"(?:{pattern})?" if word.loose or text in ("", NAME) else pattern
    return re.compile(patterns)


def test_examiner_asks_about_at_most_half_of_the_generated_code(tmp_path: Path) -> None:
    asked = 0
    for seed in range(200):
        examination = ShellExamination(PathRules(tmp_path, tmp_path), {"HOME": str(tmp_path)})
        examination.examine(ShellCorpus(seed).line())
        asked += any(danger.kind == "code" for danger in examination.found)
    assert asked < 110
