"""Files for containers, Homebrew and Nix: syntax, pinned packages, settings and volumes."""

import json
import re
import shutil
import subprocess

import pytest
import yaml
from tests.app.program import Outcome
from tests.install.package_index import ROOT

from talaria.settings.schema import SettingsSchema

pytestmark = pytest.mark.slow


def call(*command: str) -> Outcome:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return Outcome(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize(
    ("command", "file"),
    [(("ruby", "-c"), "deploy/homebrew/talaria.rb"), (("nix-instantiate", "--parse"), "flake.nix")],
)
def test_homebrew_and_nix_files_have_valid_syntax(command: tuple[str, ...], file: str) -> None:
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
    runtime, *_, final = re.findall(r"^FROM (?:.+\n)+", text, re.MULTILINE)
    assert final.startswith("FROM runtime\nCOPY --from=build ")
    assert runtime.splitlines()[0] == "FROM ${BASE} AS runtime"
    assert "\nUSER talaria\n" in runtime
    assert 'VOLUME ["/data", "/work"]' in runtime
    assert "HEALTHCHECK" in runtime
    for copied in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE):
        assert all((ROOT / name).exists() for name in copied.split())
