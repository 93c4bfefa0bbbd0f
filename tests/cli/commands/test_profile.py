import json
from pathlib import Path

import pytest
from tests.app.program import Outcome, Program


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def test_an_untouched_home_lists_the_default_profile(program: Program) -> None:
    assert program.run("profile", "list") == Outcome(0, f"*\tdefault\t{program.home}/profiles/default\n")
    assert list(program.home.iterdir()) == []


def test_profiles_have_separate_settings(program: Program) -> None:
    assert program.run("profile", "create", "work").code == 0
    assert program.run("-p", "work", "config", "set", "store.readers", "7").code == 0
    assert program.run("config", "get", "store.readers").out == "2\n"
    assert program.run("profile", "use", "work").out == "The active profile is now work.\n"
    assert program.run("config", "get", "store.readers").out == "7\n"
    assert program.run("config", "get", "store.readers", env={"TALARIA_PROFILE": "default"}).out == "2\n"


def test_profile_can_be_created_and_activated_at_once(program: Program) -> None:
    assert program.run("profile", "create", "work", "--use").out.endswith("The active profile is now work.\n")
    listed = json.loads(program.run("profile", "list", "--json").out)
    assert [(profile["name"], profile["in_use"]) for profile in listed] == [("work", True)]


def test_show_and_path_accept_a_name_or_the_profile_option(program: Program) -> None:
    program.run("profile", "create", "work")
    assert program.run("profile", "path", "work").out == f"{program.home}/profiles/work\n"
    assert program.run("profile", "path", "-p", "work").out == f"{program.home}/profiles/work\n"
    shown = json.loads(program.run("profile", "show", "--json").out)
    assert (shown["name"], shown["in_use"], shown["exists"]) == ("default", True, False)
    assert "in use\tno\n" in program.run("profile", "show", "work").out


@pytest.mark.parametrize("action", ["show", "use", "delete", "path"])
def test_unknown_profile_is_refused_with_the_nearest_name(program: Program, action: str) -> None:
    program.run("profile", "create", "work")
    refused = program.run("profile", action, "wrok")
    assert refused.code == 1
    assert refused.err.startswith("talaria: `wrok` is not a known profile; the nearest is `work`.")


def test_invalid_profile_name_is_refused(program: Program) -> None:
    refused = program.run("profile", "create", "../x")
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.startswith("talaria: `../x` isn't a valid profile name. ")


def test_deleting_asks_for_confirmation_unless_confirmed_by_option(program: Program) -> None:
    program.run("profile", "create", "work")
    folder = program.home / "profiles" / "work"
    alone = program.run("profile", "delete", "work")
    assert (alone.code, folder.exists()) == (1, True)
    assert "--yes" in alone.err
    unsure = program.run_on_terminal("profile", "delete", "work", typed="n\n")
    assert (unsure.code, folder.exists()) == (0, True)
    assert "Nothing was deleted." in unsure.out
    sure = program.run_on_terminal("profile", "delete", "work", typed="y\n")
    assert (sure.code, folder.exists()) == (0, False)


def test_active_profile_is_not_deleted(program: Program) -> None:
    program.run("profile", "create", "work", "--use")
    refused = program.run("profile", "delete", "work", "--yes")
    assert refused.code == 1
    assert "`work` is the active profile" in refused.err
    assert program.run("profile", "use", "default").code == 0
    assert program.run("profile", "delete", "work", "--yes").out == "Deleted the profile work.\n"


def test_missing_active_profile_can_be_replaced(program: Program) -> None:
    program.run("profile", "create", "work", "--use")
    (program.home / "profiles" / "work").rmdir()
    assert program.run("config", "show").code == 1
    assert program.run("profile", "list").code == 0
    assert program.run("profile", "use", "default").code == 0
    assert program.run("config", "show").code == 0
