"""Files for containers, Homebrew and Nix: syntax, and what they promise."""

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.app.program import Outcome
from tests.install.package_index import ROOT

from talaria.settings.environment import environment_value
from talaria.settings.schema import SettingsSchema
from talaria.testing.wait import until

IMAGE = "talaria-gateway-test"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


def call(*command: str) -> Outcome:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return Outcome(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize(
    ("command", "file"),
    [(("ruby", "-c"), "deploy/homebrew/talaria.rb"), (("nix-instantiate", "--parse"), "flake.nix")],
)
def test_syntax_is_valid(command: tuple[str, ...], file: str) -> None:
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} isn't installed here: the syntax of {file} is not checked.")
    done = call(*command, file)
    assert done.code == 0, done.err


def test_image_gets_the_pinned_versions_of_all_required_packages() -> None:
    base, image = (
        set(re.findall(r"^[\w.-]+==[^\s;]+", (ROOT / f"requirements/{name}.lock").read_text(), re.MULTILINE))
        for name in ("base", "container")
    )
    assert base - image == set()


def test_flake_has_all_required_packages() -> None:
    text = (ROOT / "pyproject.toml").read_text().partition("dependencies = [")[2].partition("]")[0]
    required = {name.lower().replace("_", "-") for name in re.findall(r'"([\w-]+)>=', text)}
    flake = (ROOT / "flake.nix").read_text().partition("dependencies = with")[2].partition("];")[0]
    assert required <= set(flake.split())


def test_compose_example_uses_existing_settings_and_volumes() -> None:
    document = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text())
    gateway, store = document["services"]["gateway"], document["services"]["store"]
    known = {f"TALARIA__{'__'.join(field.path).upper()}" for field in SettingsSchema().fields()}
    assert set(gateway["environment"]) <= known
    assert store["healthcheck"]["test"][1].startswith("pg_isready")
    assert f"CMD {json.dumps(gateway['healthcheck']['test'][1:])}" in (ROOT / "Containerfile").read_text()
    assert gateway["depends_on"]["store"]["condition"] == "service_healthy"
    used = [volume.partition(":")[0] for service in (gateway, store) for volume in service["volumes"]]
    assert sorted(used) == sorted(document["volumes"])


def test_image_runs_without_root_and_declares_health_and_volumes() -> None:
    text = (ROOT / "Containerfile").read_text()
    final = text.rpartition("\nFROM ")[2]
    assert "\nUSER talaria\n" in final
    assert 'VOLUME ["/data", "/work"]' in final
    assert "HEALTHCHECK" in final
    for copied in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE):
        assert all((ROOT / name).exists() for name in copied.split())


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    """The image, built with podman from a base image that is present on this machine; nothing is pulled.

    ``TALARIA_TEST_BASE`` names another base image, ``TALARIA_TEST_BUILD_OPTIONS`` has options for the build.
    """
    if shutil.which("podman") is None:
        pytest.skip("podman isn't installed here: the image is not built.")
    usual = re.search(r"^ARG BASE=(\S+)$", (ROOT / "Containerfile").read_text(), re.MULTILINE)
    assert usual is not None
    base = environment_value("TALARIA_TEST_BASE", usual[1])
    if call("podman", "image", "exists", base).code:
        pytest.skip(f"The base image isn't on this machine (`podman pull {base}`): the image is not built.")
    options = [
        "--format=docker",
        "--pull=never",
        "--network=host",
        *shlex.split(environment_value("TALARIA_TEST_BUILD_OPTIONS")),
    ]
    built = call("podman", "build", *options, "--build-arg", f"BASE={base}", "-t", IMAGE, ".")
    assert built.code == 0, built.out + built.err
    yield IMAGE
    call("podman", "rmi", "--force", IMAGE)


async def test_container_serves_the_gateway_as_an_ordinary_user(image: str, tmp_path: Path) -> None:
    assert call("podman", "run", "--rm", "--entrypoint", "id", image, "-u").out == "10001\n"
    assert call("podman", "run", "--rm", image, "update").code == 1
    started = call(
        "podman", "run", "-d", "--network=host", "-e", "TALARIA__API__ENABLED=true", "-e", "TALARIA__API__PORT=0", image
    )
    assert started.code == 0, started.err
    name = started.out.strip()
    try:
        await until(lambda: call("podman", "exec", name, "talaria", "gateway", "status").code == 0)
        healthy = call("podman", "healthcheck", "run", name)
        assert healthy.code == 0, healthy.err
        assert call("podman", "stop", "--time", "60", name).code == 0
        assert call("podman", "inspect", "--format", "{{.State.ExitCode}}", name).out == "0\n"
    finally:
        call("podman", "rm", "--force", name)
