"""`talaria update` and `talaria uninstall` on installations from an index, with a running gateway."""

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Iterator

import pytest
from tests.install.conftest import GOOD, SICK
from tests.install.installed_program import InstalledProgram
from tests.install.test_installers import VERSION, require

from talaria import __version__
from talaria.testing.screen import open_screen
from talaria.testing.wait import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
_API = "[api]\nenabled = true\nport = 0\n[gateway]\ndrain_seconds = 1.0\n"


@pytest.fixture
def gateway(program: InstalledProgram) -> Iterator[InstalledProgram]:
    """Talaria in an environment of uv, with a session and a running gateway."""
    require("uv")
    program.install("uv", VERSION)
    program.configure(_API)
    started = program.run("gateway", "start")
    assert started.code == 0, started.err
    with program.stopped_at_end():
        yield program


def running_version(program: InstalledProgram) -> str:
    """Return the version of the running gateway; empty if none runs."""
    workers = json.loads(program.run("gateway", "status", "--json").out or "[]")
    return str(workers[0]["version"]) if workers else ""


def read_restart_command(program: InstalledProgram, version: str) -> list[str]:
    """Return the command with which a gateway of an updated version replaces itself."""
    python = program.command.parent.parent / "talaria-versions" / version / "bin" / "python"
    code = "from talaria.core.installation import restart_command; print(*restart_command(), sep='\\n')"
    done = subprocess.run([python, "-c", code, "gateway", "run"], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def read_update_record(program: InstalledProgram) -> dict[str, object]:
    file = program.command.parent.parent / "talaria-versions" / "update.json"
    return dict(json.loads(file.read_text())) if file.exists() else {}


def test_update_and_rollback_switch_program_and_gateway(gateway: InstalledProgram) -> None:
    checked = gateway.run("update", "--check", "--json")
    assert json.loads(checked.out) == {"installed": __version__, "newest": SICK, "update_available": True}
    done = gateway.run("update", "--to", GOOD)
    assert done.code == 0, done.err
    assert f"Talaria {GOOD} is installed." in done.out
    assert (gateway.run("--version").out, running_version(gateway)) == (f"talaria {GOOD}\n", GOOD)
    assert read_restart_command(gateway, GOOD) == [str(gateway.command), "gateway", "run"]
    backups = list((gateway.home / "data/profiles/default/backups").glob(f"before-{GOOD}-*.zip"))
    assert len(backups) == 1
    same = gateway.run("update", "--to", GOOD)
    assert (same.code, same.out) == (0, f"Talaria {GOOD} is the newest version.\n")
    unconfirmed = gateway.run("update", "--rollback")
    assert (unconfirmed.code, "--yes" in unconfirmed.err) == (1, True)
    back = gateway.run("update", "--rollback", "--yes")
    assert (back.code, back.out) == (0, f"Talaria {__version__} is in use again.\n"), back.err
    assert (gateway.run("--version").out, running_version(gateway)) == (f"talaria {__version__}\n", __version__)


def test_version_with_an_unhealthy_gateway_is_rolled_back(gateway: InstalledProgram) -> None:
    done = gateway.run("update", "--wait", "1")
    assert done.code == 1
    assert f"Talaria {SICK} wasn't put into use, {__version__} is running again" in done.err
    assert "didn't become healthy within 1 s" in done.err
    assert "was restored from" in done.out
    assert (gateway.run("--version").out, running_version(gateway)) == (f"talaria {__version__}\n", __version__)
    assert gateway.run("sessions", "list").code == 0
    folder = gateway.home / "data/profiles/default"
    assert len(list(folder.glob("talaria.db.newer-*"))) == 1
    assert not list(folder.glob("talaria.db.restored*"))


@pytest.mark.parametrize("moment", ["recorded", "switched"])
async def test_killed_update_leaves_a_working_program(gateway: InstalledProgram, moment: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *(gateway.command, "update"),
        env=gateway.environment,
        cwd=gateway.home,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    reached = {
        "recorded": lambda: read_update_record(gateway).get("pending") is not None,
        "switched": lambda: SICK in os.path.realpath(gateway.command),
    }[moment]
    await until(reached)
    process.send_signal(signal.SIGKILL)
    await process.wait()
    assert gateway.run("--version").out in (f"talaria {__version__}\n", f"talaria {SICK}\n")
    assert "An update was interrupted." in gateway.run("doctor", "--offline").out
    recovered = gateway.run("update")
    assert recovered.code == 0, recovered.err
    assert f"An update was interrupted. Talaria {__version__} is in use again" in recovered.out
    assert (gateway.run("--version").out, running_version(gateway)) == (f"talaria {__version__}\n", __version__)
    assert read_update_record(gateway)["pending"] is None


def test_second_update_is_refused_while_the_first_runs(program: InstalledProgram) -> None:
    require("uv")
    program.install("uv", VERSION)
    versions = program.command.parent.parent / "talaria-versions"
    versions.mkdir()
    with subprocess.Popen(["flock", str(versions), "cat"], stdin=subprocess.PIPE) as holder:
        while subprocess.run(["flock", "-n", str(versions), "true"], check=False).returncode == 0:
            pass
        refused = program.run("update", "--to", GOOD)
        holder.communicate()
    assert (refused.code, "Another update is running" in refused.err) == (1, True)


async def test_chat_mentions_a_newer_version_if_the_check_is_enabled(program: InstalledProgram) -> None:
    require("uv")
    await asyncio.to_thread(program.install, "uv", VERSION)
    note = f"Talaria {SICK} is available"
    program.configure(
        "[embedded]\nenabled = false\n[providers.mine]\nbase_url = 'http://127.0.0.1:9/v1'\n"
        "[model]\nprovider = 'mine'\nname = 'any'\n[update]\ncheck = true\n"
    )
    async with open_screen([str(program.command)], env=program.environment, cwd=program.home, rows=40) as screen:
        await screen.wait_for(note)
        await screen.press("c-d")
        assert await screen.exit_code() == 0
    checked = json.loads((program.home / "data/update-check.json").read_text())
    assert checked["newest"] == SICK


def test_unknown_version_changes_nothing(program: InstalledProgram) -> None:
    require("uv")
    program.install("uv", VERSION)
    refused = program.run("update", "--to", "77.0")
    assert refused.code == 1
    assert "uv failed with exit code" in refused.err
    assert program.run("--version").out == f"talaria {__version__}\n"


def test_uninstall_removes_service_versions_and_data(gateway: InstalledProgram) -> None:
    assert gateway.run("update", "--to", GOOD).code == 0
    assert gateway.run("gateway", "stop").code == 0
    gateway.run("gateway", "install")
    unit = gateway.home / ".config/systemd/user/talaria-default.service"
    assert f'ExecStart="{gateway.command}"' in unit.read_text()
    assert gateway.run("gateway", "start").code == 0
    gone = gateway.run("uninstall", "--yes", "--delete-data")
    assert gone.code == 0, gone.err
    left = [unit, gateway.command, gateway.home / "data", gateway.command.parent.parent / "talaria-versions"]
    assert [path for path in left if os.path.lexists(path)] == []
