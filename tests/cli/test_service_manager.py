"""Notifications of a gateway to a service manager, on a real socket."""

import asyncio
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.app import warm_program
from tests.app.program import Program

from talaria.testing.wait import LIMIT, until

_API = "[api]\nenabled = true\nport = 0\n[gateway]\ndrain_seconds = 0.0\n"


@pytest.fixture
def program(tmp_path: Path) -> Program:
    folder = tmp_path / "profiles" / "default"
    folder.mkdir(mode=0o700, parents=True)
    (folder / "config.toml").write_text(_API)
    return Program(tmp_path)


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """The socket on which a service manager receives notifications."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(str(tmp_path / "notify"))
        channel.settimeout(0)
        yield channel


def read_notifications(manager: socket.socket, lines: list[str]) -> list[str]:
    """Append the received notifications to the lines and return them."""
    while True:
        try:
            lines += manager.recv(4096).decode().splitlines()
        except BlockingIOError:
            return lines


async def test_gateway_reports_ready_alive_and_stopping(program: Program, manager: socket.socket) -> None:
    lines: list[str] = []
    environment = program.environment(NOTIFY_SOCKET=manager.getsockname(), WATCHDOG_USEC="300000")
    process = await warm_program.start("gateway", "run", env=environment)
    await until(lambda: "READY=1" in read_notifications(manager, lines))
    assert "STATUS=The gateway is serving the API. Press Ctrl-C to stop it." in lines
    assert lines.index("WATCHDOG=1") < lines.index("READY=1")
    assert "EXTEND_TIMEOUT_USEC=60000000" in lines[: lines.index("READY=1")]
    before = lines.count("WATCHDOG=1")
    await until(lambda: read_notifications(manager, lines).count("WATCHDOG=1") >= before + 3)
    assert "STOPPING=1" not in lines
    process.terminate()
    async with asyncio.timeout(LIMIT):
        assert await process.wait() == 0
    assert "STOPPING=1" in read_notifications(manager, lines)
    assert lines.count("READY=1") == 1


async def test_gateway_ignores_a_watchdog_of_another_process(program: Program, manager: socket.socket) -> None:
    lines: list[str] = []
    environment = program.environment(NOTIFY_SOCKET=manager.getsockname(), WATCHDOG_USEC="1000", WATCHDOG_PID="1")
    process = await warm_program.start("gateway", "run", env=environment)
    await until(lambda: "READY=1" in read_notifications(manager, lines))
    assert lines.count("WATCHDOG=1") <= 2  # with the interval of the other process there would be hundreds
    process.terminate()
    async with asyncio.timeout(LIMIT):
        assert await process.wait() == 0


def test_systemd_unit_expects_notifications_and_is_valid(program: Program, tmp_path: Path) -> None:
    text = program.run("gateway", "install", "--print").out
    assert {"Type=notify", "NotifyAccess=main", "WatchdogSec=60"} <= set(text.splitlines())
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze isn't installed here: the unit is not verified by systemd.")
    unit = tmp_path / "talaria-default.service"
    unit.write_text(text)
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
    )
    assert [line for line in checked.stderr.splitlines() if unit.name in line] == []
    assert checked.returncode == 0, checked.stderr
