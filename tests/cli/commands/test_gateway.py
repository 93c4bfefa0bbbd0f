import os
import plistlib
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from tests.app.program import TALARIA, Program

from talaria.cli.commands.gateway import service_units as service_files
from talaria.cli.commands.gateway.service_units import build_service_file

UNIT = Path(".config/systemd/user/talaria-default.service")
pytestmark = pytest.mark.skipif(sys.platform == "darwin", reason="asks for units of systemd")


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


@pytest.fixture
def no_systemctl(tmp_path: Path) -> dict[str, str]:
    """A PATH on which there is no systemctl."""
    folder = tmp_path / "empty"
    folder.mkdir()
    return {"PATH": str(folder)}


def systemctl(folder: Path, *, code: int = 0) -> dict[str, str]:
    """Put a systemctl on the PATH that records its arguments."""
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    fake = programs / "systemctl"
    fake.write_text(f'#!/bin/sh\necho "$*" >> {folder}/calls\necho "no bus" >&2\nexit {code}\n')
    fake.chmod(0o755)
    return {"PATH": f"{programs}{os.pathsep}/bin{os.pathsep}/usr/bin"}


def test_install_with_print_shows_the_unit_without_writing_it(program: Program) -> None:
    shown = program.run("gateway", "install", "--print")
    assert (shown.code, shown.err) == (0, "")
    lines = shown.out.splitlines()
    command = next(line.partition("=")[2] for line in lines if line.startswith("ExecStart="))
    assert shlex.split(command)[1:] == ["-m", "talaria", "-p", "default", "gateway", "run"]
    assert f'Environment="TALARIA_HOME={program.home}"' in lines
    assert {"Restart=on-failure", "TimeoutStopSec=75", "WantedBy=default.target"} <= set(lines)
    assert not (program.home / ".config").exists()


def test_unit_contains_no_secrets(program: Program) -> None:
    shown = program.run("gateway", "install", "--print", env={"OPENAI_API_KEY": "sk-hidden"})
    assert "sk-hidden" not in shown.out


def test_install_without_systemctl_prints_the_command_to_run(program: Program, no_systemctl: dict[str, str]) -> None:
    done = program.run("gateway", "install", env=no_systemctl)
    assert done.code == 0
    assert "systemctl --user enable --now talaria-default.service" in done.out
    assert (program.home / UNIT).read_text() == program.run("gateway", "install", "--print", env=no_systemctl).out
    assert [path.name for path in (program.home / UNIT).parent.iterdir()] == [UNIT.name]
    gone = program.run("gateway", "uninstall", env=no_systemctl)
    assert (gone.code, (program.home / UNIT).exists()) == (0, False)
    assert program.run("gateway", "uninstall", env=no_systemctl).code == 1


def test_install_and_uninstall_call_systemctl(program: Program) -> None:
    environment = systemctl(program.home)
    assert program.run("gateway", "install", env=environment).code == 0
    assert program.run("gateway", "uninstall", env=environment).code == 0
    assert (program.home / "calls").read_text().splitlines() == [
        "--user daemon-reload",
        "--user enable --now talaria-default.service",
        "--user disable --now talaria-default.service",
        "--user daemon-reload",
    ]


def test_error_of_systemctl_is_reported(program: Program) -> None:
    done = program.run("gateway", "install", env=systemctl(program.home, code=1))
    assert done.code == 1
    assert "couldn't be started: no bus" in done.err
    assert "  systemctl --user daemon-reload\n" in done.err
    assert (program.home / UNIT).exists()


def test_every_profile_has_its_own_service(program: Program, no_systemctl: dict[str, str]) -> None:
    assert program.run("profile", "create", "work").code == 0
    assert program.run("-p", "work", "gateway", "install", env=no_systemctl).code == 0
    unit = (program.home / UNIT).with_name("talaria-work.service").read_text()
    assert '"-p" "work" "gateway" "run"' in unit


def test_special_characters_are_escaped_in_the_unit(tmp_path: Path) -> None:
    odd = service_files.ServiceProgram(
        profile="default", command=('/a "b"/50%/$x',), environment={"A": "100%$y"}, drain_seconds=0.0
    )
    text = build_service_file(odd, {"HOME": str(tmp_path)}, system="linux").text
    assert 'ExecStart="/a \\"b\\"/50%%/$$x"\n' in text
    assert 'Environment="A=100%%$y"\n' in text


def test_launchd_agent_has_the_same_settings(tmp_path: Path) -> None:
    program = service_files.ServiceProgram(
        profile="work", command=("python", "-m", "a<b&c"), environment={"PATH": "/bin"}, drain_seconds=30.0
    )
    service = build_service_file(program, {"HOME": str(tmp_path)}, system="darwin")
    assert service.path == tmp_path / "Library/LaunchAgents/talaria.work.plist"
    agent = plistlib.loads(service.text.encode())
    assert (agent["Label"], agent["ProgramArguments"]) == ("talaria.work", ["python", "-m", "a<b&c"])
    assert (agent["EnvironmentVariables"], agent["RunAtLoad"], agent["ExitTimeOut"]) == ({"PATH": "/bin"}, True, 75)
    assert agent["KeepAlive"] == {"SuccessfulExit": False}


@pytest.mark.parametrize("action", ["run", "start"])
def test_gateway_without_networks_does_not_claim_to_serve(program: Program, action: str) -> None:
    done = program.run("gateway", action)
    assert done.code == 1
    assert "No chat network is set up" in done.err
    assert "serving" not in done.out + done.err
    assert "serves" not in done.out + done.err


def test_gateway_reports_a_network_that_cannot_be_reached(program: Program) -> None:
    (program.home / "profiles" / "default").mkdir(parents=True, exist_ok=True)
    (program.home / "profiles" / "default" / "config.toml").write_text(
        '[platforms.telegram.options]\nbase_url = "http://127.0.0.1:9/bot"\n'
    )
    process = subprocess.Popen(
        [TALARIA, "gateway", "run"],
        env=program.environment(TELEGRAM_BOT_TOKEN="1:x"),
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    shown = ""
    for line in process.stderr:
        shown += line
        if "telegram can't be reached" in line:
            break
    process.terminate()
    process.communicate(timeout=60)
    assert "The gateway is serving telegram." in shown
    assert "telegram can't be reached: can't reach Telegram" in shown
