"""The container image: built from this checkout without a network, and run alone and as in the compose example."""

import asyncio
import json
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from scripts.container_base import BASE, build, find_problem, is_made, podman, podman_command
from tests.app.program import Outcome
from tests.install.package_index import ROOT
from tests.leftover_processes import RUN_VARIABLE

from talaria.settings.environment import read_environment_value
from talaria.testing.postgres import find_postgres
from talaria.testing.wait import until

IMAGE = "localhost/talaria-gateway-test:latest"
PASSWORD = "correct-horse"
# podman's own limits are refused where this is a container itself
RUN = ("run", "--pull=never", "--ulimit=nofile=4096:4096", "--ulimit=nproc=4096:4096")
SERVING = "The gateway is serving"
LIMIT = 300.0  # seconds; containers start slowly on a busy machine
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

# The image of the compose example isn't available offline: the PostgreSQL of this machine stands in for it.
STORE = """
cd /var/lib/postgresql/data
if [ ! -s PG_VERSION ]; then
    echo "$POSTGRES_PASSWORD" > /tmp/password
    initdb -D . -U "$POSTGRES_USER" --pwfile=/tmp/password --auth-host=scram-sha-256 --no-locale -E UTF8 --no-sync
    echo "CREATE DATABASE $POSTGRES_DB" | postgres --single -D . postgres
fi
exec postgres -D . -k /tmp -c listen_addresses=127.0.0.1
"""

ASK = """
import urllib.request
address, headers = "http://127.0.0.1:8642/v1/models", {"Authorization": "Bearer key-of-the-env-file"}
print(urllib.request.urlopen(urllib.request.Request(address, headers=headers)).read().decode())
"""

# How each key of a service is given to `podman run`; a key that isn't here fails the test.
OPTIONS: dict[str, Callable[[Any], list[str]]] = {
    "build": lambda _: [],
    "image": lambda _: [],
    "depends_on": lambda _: [],
    "env_file": lambda _: [],
    "ports": lambda _: [],  # both containers share a network that has nothing but loopback
    "restart": lambda value: ["--restart", value],
    "environment": lambda values: [f"--env={name}={_insert_password(value)}" for name, value in values.items()],
    "volumes": lambda values: [f"--volume={value}" for value in values],
    "healthcheck": lambda value: [f"--health-cmd={_to_command(value['test'])}", "--health-interval=disable"],
    "stop_grace_period": lambda value: [f"--stop-timeout={value.removesuffix('s')}"],
    "read_only": lambda value: [f"--read-only={json.dumps(value)}"],
    "tmpfs": lambda values: [f"--tmpfs={value}" for value in values],
    "security_opt": lambda values: [f"--security-opt={value.removesuffix(':true')}" for value in values],
    "cap_drop": lambda values: [f"--cap-drop={value}" for value in values],
}


def _insert_password(text: str) -> str:
    return re.sub(r"\$\{POSTGRES_PASSWORD:[^}]*\}", PASSWORD, text)


def _to_command(test: list[str]) -> str:
    return test[1] if test[0] == "CMD-SHELL" else shlex.join(test[1:])


def call(*arguments: str) -> Outcome:
    try:
        done = podman(*arguments)
    except subprocess.CalledProcessError as error:
        return Outcome(error.returncode, error.stdout, error.stderr)
    return Outcome(0, done.stdout, done.stderr)


def start(name: str, image: str, *options: str, command: tuple[str, ...] = ()) -> None:
    """Start a container that is found among the processes of this test run."""
    mark = f"--env={RUN_VARIABLE}={read_environment_value(RUN_VARIABLE)}"
    podman(*RUN, "--detach", "--name", name, mark, *options, image, *command)


async def wait_for_health(container: str, ready: str) -> None:
    """Wait until the log of a container has a line with ``ready``, and its health check passes."""
    await asyncio.to_thread(follow_log, container, ready)
    await until(lambda: call("healthcheck", "run", container).code == 0, within=LIMIT)


def follow_log(container: str, ready: str) -> None:
    """Read the log of a container up to a line with ``ready``; fail if the container ends before."""
    lines: list[str] = []
    command = podman_command("logs", "--follow", container)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as following:
        assert following.stdout is not None
        for line in following.stdout:
            if ready in line:
                following.kill()
                return
            lines.append(line)
    pytest.fail(f"{container} has ended: {''.join(lines)}")


def stop_gateway() -> None:
    """Stop the gateway, which has to end by itself, and remove its container."""
    podman("stop", "gateway")
    assert podman("inspect", "--format", "{{.State.ExitCode}}", "gateway").stdout == "0\n"
    podman("rm", "gateway")


@pytest.fixture
def image() -> Iterator[str]:
    """The image, built from this checkout; nothing is pulled."""
    if problem := find_problem():
        pytest.skip(f"The image isn't built: {problem}.")
    if not is_made():
        pytest.skip("The image isn't built: `make containerbase` makes what it is built from.")
    remove_all()
    build("", IMAGE)
    try:
        yield IMAGE
    finally:
        remove_all()


def remove_all() -> None:
    """Remove containers, volumes and images without a name, also those of a run that was killed while it built."""
    if containers := podman("ps", "--all", "--external", "--quiet").stdout.split():
        podman("rm", "--force", "--time=0", *containers)
    podman("volume", "prune", "--force")
    podman("image", "prune", "--force")


async def test_image_serves_the_gateway_alone_and_on_postgresql(image: str, tmp_path: Path) -> None:
    start("gateway", image, "--network=none", "--env=TALARIA__API__ENABLED=true", "--volume=alone:/data")
    await wait_for_health("gateway", SERVING)
    assert podman("exec", "gateway", "id", "-u").stdout == "10001\n"
    refused = call("exec", "gateway", "talaria", "update")
    assert (refused.code, "Traceback" in refused.err) == (1, False), refused.err
    stop_gateway()
    programs = find_postgres()
    if programs is None:
        pytest.skip("PostgreSQL isn't installed here: the compose example is not run.")
    services = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text())["services"]
    (tmp_path / ".env").write_text(f"POSTGRES_PASSWORD={PASSWORD}\nTALARIA_API_KEY=key-of-the-env-file\n")
    (tmp_path / "hosts").write_text("127.0.0.1 localhost store\n")
    start_store(services["store"], programs)
    await wait_for_health("store", "ready to accept connections")
    options = [f"--env-file={tmp_path}/.env", f"--volume={tmp_path}/hosts:/etc/hosts:ro", "--network=container:store"]
    options += translate(services["gateway"])
    start("gateway", image, *options)
    await wait_for_health("gateway", SERVING)
    created = call("exec", "gateway", "talaria", "cron", "add", "every 2h", "Drink water", "--name", "Water")
    assert created.code == 0, created.err
    assert call("exec", "gateway", "touch", "/opt/talaria/changed").code != 0, "the file system is read-only"
    stop_gateway()
    start("gateway", image, *options)
    await wait_for_health("gateway", SERVING)
    assert "Water" in podman("exec", "gateway", "talaria", "cron", "list").stdout
    assert json.loads(podman("exec", "gateway", "python3", "-c", ASK).stdout)["data"]
    stop_gateway()


def translate(service: dict[str, Any]) -> list[str]:
    """Return the options of `podman run` for a service of the compose example."""
    return [option for key, value in service.items() for option in OPTIONS[key](value)]


def start_store(service: dict[str, Any], programs: Path) -> None:
    """Start PostgreSQL as the service of the compose example, with the programs of this machine."""
    options = [f"--env=PATH={programs}:/usr/bin:/bin", "--env=PGHOST=/tmp", "--volume=/usr:/usr:ro", "--user=nobody"]
    start("store", BASE, *translate(service), *options, "--network=none", command=("sh", "-ec", STORE))
