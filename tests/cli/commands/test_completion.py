import argparse
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.app.program import Program, terminal_pair

from talaria.cli.commands.completion import bash_script, fish_script, zsh_script
from talaria.cli.parser import Parser, add_completion
from talaria.cli.parser_tree import CommandSpec, read_parser

SCRIPTS = {"bash": bash_script, "zsh": zsh_script, "fish": fish_script}


def sample() -> CommandSpec:
    """Return a sample command line with every kind of argument; its dynamic values come from the real program."""
    parser = Parser(prog="talaria")
    actions = parser.add_subparsers()
    config = actions.add_parser("config", help='it\'s 100%% "settings": all of them').add_subparsers()
    key = config.add_parser("get", help="show one").add_argument("key", nargs="+")
    add_completion(key, "settings")
    show = config.add_parser("show", help="show all")
    show.add_argument("--format", choices=("toml", "json"), help="how")
    show.add_argument("--json", action="store_true")
    show.add_argument("--secret", help=argparse.SUPPRESS)
    add_completion(actions.add_parser("use", help="choose").add_argument("name"), "profiles")
    keep = actions.add_parser("keep", help="save")
    add_completion(keep.add_argument("file"), "files")
    add_completion(keep.add_argument("--into"), "folders")
    keep.add_argument("speed", nargs="?", choices=("fast", "slow"))
    return read_parser(("talaria",), "", parser)


CASES = [
    ("talaria ", ["config", "keep", "use"]),
    ("talaria co", ["config"]),
    ("talaria config ", ["get", "show"]),
    ("talaria config show --f", ["--format"]),
    ("talaria config show --secre", []),
    ("talaria config show --format ", ["json", "toml"]),
    ("talaria config show --format t", ["toml"]),
    ("talaria config show --color ne", ["never"]),
    ("talaria -p work config sh", ["show"]),
    ("talaria config -p work sh", ["show"]),
    ("talaria config show --json --f", ["--format"]),
    ("talaria use ", ["default", "work"]),
    ("talaria use w", ["work"]),
    ("talaria use -- w", ["work"]),
    ("talaria use work ", []),
    ("talaria --profile ", ["default", "work"]),
    ("talaria config get store.u", ["store.url"]),
    ("talaria config get store.url cli.c", ["cli.color"]),
    ("talaria keep some f", ["fast"]),
    ("talaria nothing ", []),
]


@pytest.fixture
def program(tmp_path: Path) -> Program:
    (tmp_path / "profiles" / "work").mkdir(parents=True)
    return Program(tmp_path)


def script_for(shell: str, folder: Path) -> Path:
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed here")
    path = folder / f"talaria.{shell}"
    path.write_text(SCRIPTS[shell](sample()))
    return path


def complete_in_bash(program: Program, line: str) -> list[str]:
    words = re.findall(r"=|[^\s=]+", line) + ([""] if line.endswith(" ") else [])
    script = f"""
        source {shlex.quote(str(script_for("bash", program.home)))}
        COMP_WORDS=({shlex.join(words)}) COMP_CWORD={len(words) - 1}
        $(complete -p talaria | sed 's/.*-F \\([^ ]*\\).*/\\1/') talaria {shlex.quote(words[-1])}
        printf '%s\\n' "${{COMPREPLY[@]}}"
        """
    done = subprocess.run(
        ["bash", "--norc", "-c", script], env=program.environment(), capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return sorted(done.stdout.split())


def complete_in_fish(program: Program, line: str) -> list[str]:
    script = f"source {script_for('fish', program.home)}; complete -C {shlex.quote(line)}"
    done = subprocess.run(
        ["fish", "--no-config", "-c", script], env=program.environment(), capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return sorted(candidate.split("\t")[0] for candidate in done.stdout.splitlines())


def press_tab_in_zsh(program: Program, line: str) -> str:
    """Return the line after Tab was pressed at its end."""
    script = script_for("zsh", program.home)
    set_up = f"""PS1= PS2=
        autoload -U compinit && compinit -u -D
        source {script}
        tell() {{ print -r -- "LINE<$BUFFER>"; BUFFER= }}
        zle -N tell; bindkey '^G' tell; unsetopt zle_bracketed_paste; print READY"""
    start = program.home / "start.zsh"
    start.write_text(set_up)
    with terminal_pair(columns=200) as (person, screen):
        shell = subprocess.Popen(
            ["zsh", "-f", "-i"], env=program.environment(), stdin=screen, stdout=screen, stderr=screen
        )
        os.close(screen)
        os.write(person, f"source {start}\n".encode())
        read_until(person, r"READY\r?\n")
        os.write(person, f"{line}\t\x07".encode())
        found = read_until(person, r"LINE<(.*?)>")
        os.write(person, b"exit\n")
        shell.wait()
    return found


def read_until(terminal: int, pattern: str) -> str:
    shown = ""
    while not (found := re.search(pattern, shown)):
        shown += os.read(terminal, 65536).decode(errors="replace")
    return found[found.lastindex or 0]


@pytest.mark.parametrize(("line", "candidates"), [*CASES, ("talaria --color=a", ["always", "auto"])])
def test_bash_offers_matching_candidates(program: Program, line: str, candidates: list[str]) -> None:
    assert [found for found in complete_in_bash(program, line) if found] == candidates


@pytest.mark.parametrize(("line", "candidates"), [*CASES, ("talaria --color=a", ["--color=always", "--color=auto"])])
def test_fish_offers_matching_candidates(program: Program, line: str, candidates: list[str]) -> None:
    assert complete_in_fish(program, line) == candidates


@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("talaria co", "talaria config "),
        ("talaria config s", "talaria config show "),
        ("talaria config show --fo", "talaria config show --format "),
        ("talaria config show --format=t", "talaria config show --format=toml "),
        ("talaria --color ne", "talaria --color never "),
        ("talaria -p wo", "talaria -p work "),
        ("talaria use w", "talaria use work "),
        ("talaria config get store.u", "talaria config get store.url "),
        ("talaria config get store.url cli.c", "talaria config get store.url cli.color "),
        ("talaria keep some f", "talaria keep some fast "),
        ("talaria use zzz", "talaria use zzz"),
    ],
)
def test_zsh_completes_the_line(program: Program, line: str, completed: str) -> None:
    assert press_tab_in_zsh(program, line) == completed


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_printed_completion_script_is_valid_in_its_shell(program: Program, shell: str) -> None:
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed here")
    printed = program.run("completion", shell)
    assert (printed.code, printed.err) == (0, "")
    subprocess.run([shell, "-n"], input=printed.out, text=True, check=True)


def test_completion_without_a_shell_is_refused(program: Program) -> None:
    refused = program.run("completion")
    assert refused.code == 1
    assert "`talaria completion bash`" in refused.err


def test_help_shows_where_to_install_each_script(program: Program) -> None:
    shown = program.run("completion", "--help").out
    for path in (
        "bash-completion/completions/talaria",
        "~/.zsh/completions/_talaria",
        "fish/completions/talaria.fish",
    ):
        assert path in shown
    assert "--values" not in shown
