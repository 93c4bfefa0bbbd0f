"""Fixtures for tests of sandboxes: podman, docker, an ssh server and supervised background processes."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.storage.engines import StoreLocation
from tests.tools.process.process_fixture import SupervisedSession, open_supervised_session
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
async def supervised(
    sqlite_location: StoreLocation, clock: SettableClock, tmp_path: Path
) -> AsyncIterator[SupervisedSession]:
    store = sqlite_location.open_store(clock)
    async with open_supervised_session(store, tmp_path) as supervised:
        yield supervised
        for process in await supervised.listed():
            await supervised.supervisor.kill(process, "conversation")
    await store.close()
