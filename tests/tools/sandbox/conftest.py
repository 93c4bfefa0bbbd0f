"""What tests of sandboxes share: podman, docker and an ssh server of their own, and background processes."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.storage.engines import Place
from tests.tools.process.process_fixture import Bench, supervised
from tests.tools.sandbox.sandboxes import (
    Containers,
    docker_problem,
    podman_problem,
    running_docker,
    running_podman,
    running_sshd,
    sshd_problem,
)

from talaria.testing.clock import SettableClock
from talaria.tools.sandbox.ssh import SshHost


@pytest.fixture(scope="session")
def podman() -> Iterator[Containers]:
    if problem := podman_problem():
        pytest.skip(f"No container here: {problem}")
    with running_podman() as containers:
        yield containers


@pytest.fixture(scope="session")
def docker() -> Iterator[Containers]:
    if problem := docker_problem():
        pytest.skip(f"No container here: {problem}")
    with running_docker() as containers:
        yield containers


@pytest.fixture(scope="session")
def ssh_server() -> Iterator[tuple[SshHost, Path]]:
    """A host whose server runs on loopback, and the folder of its keys."""
    if problem := sshd_problem():
        pytest.skip(f"No ssh server here: {problem}")
    with running_sshd() as started:
        yield started


@pytest.fixture
async def bench(sqlite_place: Place, clock: SettableClock, tmp_path: Path) -> AsyncIterator[Bench]:
    store = sqlite_place.open_store(clock)
    async with supervised(store, tmp_path) as bench:
        yield bench
        for process in await bench.listed():
            await bench.supervisor.kill(process, "conversation")
    await store.close()
