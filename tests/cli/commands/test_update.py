"""`talaria update` and `talaria uninstall` where another tool is responsible for the program."""

from pathlib import Path

import pytest
from tests.app.program import Program

from talaria.cli.commands.update.check import compare_versions


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


@pytest.mark.parametrize("arguments", [(), ("--to", "9.9"), ("--rollback", "--yes")])
def test_update_of_a_checkout_is_refused_with_a_hint_to_git(program: Program, arguments: tuple[str, ...]) -> None:
    refused = program.run("update", *arguments)
    assert (refused.code, refused.out) == (1, "")
    assert refused.err == "talaria: This is a checkout. Update it with `git pull`, then run `make run`.\n"


def test_uninstall_of_a_checkout_requires_yes_and_leaves_the_data(program: Program) -> None:
    assert program.run("profile", "create", "work").code == 0
    refused = program.run("uninstall")
    assert (refused.code, "Add --yes" in refused.err) == (1, True)
    uninstalled = program.run("uninstall", "--yes")
    assert (uninstalled.code, uninstalled.err) == (0, "")
    assert f"Your data is still in {program.home}." in uninstalled.out
    assert "`make clean`" in uninstalled.out
    assert (program.home / "profiles" / "work").exists()


def test_uninstall_on_a_terminal_asks_about_the_data(tmp_path: Path) -> None:
    program = Program(tmp_path / "home")
    assert program.run("profile", "create", "work").code == 0
    no = program.run_on_terminal("uninstall", typed="n\n")
    assert (no.code, "Nothing was removed." in no.out) == (1, True)
    yes = program.run_on_terminal("uninstall", typed="y\ny\n")
    assert yes.code == 0
    assert "(1 profile, 0.0 MB)? This can't be undone." in " ".join(yes.out.split())
    assert not program.home.exists()


@pytest.mark.parametrize(
    ("newer", "older"),
    [
        ("1.10", "1.9"),
        ("2.0", "2.0rc1"),
        ("2.0rc1", "2.0b3"),
        ("1.0.post1", "1.0"),
        ("1.0.1", "1.0"),
        ("1.0", "1.0.dev3"),
    ],
)
def test_versions_are_compared_by_their_numbers(newer: str, older: str) -> None:
    assert compare_versions(newer, older) > 0
    assert compare_versions(older, newer) < 0
    assert compare_versions(older, f"{older}") == 0
