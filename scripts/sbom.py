"""Software bill of materials of a release: CycloneDX JSON, from the lock files and the vendored JavaScript."""

import hashlib
import json
import re
import uuid
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from importlib.resources import files
from pathlib import Path
from typing import Any

from talaria import __version__

ROOT = Path(__file__).parent.parent
_LOCKED = re.compile(r"^([\w.-]+)(?:\[[\w,-]+\])?==([^\s;]+)(?: ; (.*?))?(?: \\)?$", re.MULTILINE)
_NAME = re.compile(r"^[\w.-]+")
_EXPRESSION = re.compile(r"^[\w.+-]+(?: (?:AND|OR|WITH) [\w.+-]+)*$")
_OWN = "talaria-agent"
_SCHEMAS = "http://cyclonedx.org/schema/"


def build_sbom(wheel: Path) -> str:
    """Return the bill of materials of a wheel: requirements, packages of extras, and vendored JavaScript."""
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    components = {one["bom-ref"]: one for one in (*_python_components(), *_script_components())}
    own = _component(_OWN, __version__, "application") | {
        "licenses": [{"license": {"id": "MIT"}}],
        "hashes": [{"alg": "SHA-256", "content": digest}],
    }
    document = {
        "$schema": f"{_SCHEMAS}bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, digest)}",
        "version": 1,
        "metadata": {"component": own},
        "components": [components[key] for key in sorted(components)],
        "dependencies": _dependencies(own["bom-ref"], components),
    }
    return json.dumps(document, indent=2) + "\n"


def find_problems(sbom: Path) -> list[str]:
    """Return the violations of the CycloneDX schema."""
    from jsonschema_rs import Draft7Validator, Registry  # noqa: PLC0415 (only for this check)

    schemas = {name: _read_schema(name) for name in ("bom-1.6", "spdx", "jsf-0.82")}
    # The main schema refers to the others by file name, relative to its own URL.
    others = Registry([(f"{_SCHEMAS}{name}.SNAPSHOT.schema.json", schema) for name, schema in schemas.items()])
    check = Draft7Validator(schemas["bom-1.6"], registry=others, validate_formats=True)
    errors = check.iter_errors(json.loads(sbom.read_text()))
    return [f"{sbom.name} is invalid at {error.instance_path}: {error.message}" for error in errors]


def _read_schema(name: str) -> Any:
    """Return a schema of CycloneDX from its library."""
    return json.loads((files("cyclonedx.schema") / "_res" / f"{name}.SNAPSHOT.schema.json").read_text())


def _python_components() -> Iterator[dict[str, Any]]:
    """Yield the locked packages; those that only an extra needs are optional."""
    required = {name.lower() for name, _, _ in _read_lock("base")}
    for name, version, marker in _read_lock("all"):
        found = _component(name, version, "library")
        found["scope"] = "required" if name.lower() in required else "optional"
        if licenses := _find_licenses(name):
            found["licenses"] = licenses
        if marker:
            found["properties"] = [{"name": "python:marker", "value": marker}]
        yield found


def _script_components() -> Iterator[dict[str, Any]]:
    """Yield the JavaScript libraries that the web app includes."""
    lock = json.loads((ROOT / "src/talaria/web/static/vendor/lock.json").read_text())
    for name, package in lock["packages"].items():
        found = _component(name, package["version"], "library", kind="npm")
        found["scope"] = "required"
        found["hashes"] = [{"alg": "SHA-256", "content": package["archive_sha256"]}]
        yield found


def _read_lock(name: str) -> list[tuple[str, str, str]]:
    """Return name, version and marker of each package in a lock file."""
    found = _LOCKED.findall((ROOT / "requirements" / f"{name}.lock").read_text())
    return [(package, version, marker) for package, version, marker in found]


def _component(name: str, version: str, type_: str, *, kind: str = "pypi") -> dict[str, Any]:
    address = f"pkg:{kind}/{name.replace('@', '%40')}@{version}"
    return {"type": type_, "bom-ref": address, "name": name, "version": version, "purl": address}


def _find_licenses(name: str) -> list[dict[str, Any]]:
    """Return the licence of an installed package as its metadata states it."""
    try:
        metadata = distribution(name).metadata
    except PackageNotFoundError:
        return []
    expression = metadata["License-Expression"] or ""
    if _EXPRESSION.match(expression):
        return [{"expression": expression}]
    titles = [one.rpartition(" :: ")[2] for one in metadata.get_all("Classifier", []) if one.startswith("License ::")]
    return [{"license": {"name": title}} for title in titles]


def _dependencies(own: str, components: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the dependencies between packages, as far as these are installed here."""
    by_name: dict[str, str] = {}
    for reference, one in components.items():
        by_name.setdefault(_normalize(one["name"]), reference)
    edges = {own: sorted(reference for reference, one in components.items() if one.get("scope") == "required")}
    for reference, one in components.items():
        needed = {_normalize(name) for name in _required_names(one["name"])}
        edges[reference] = sorted(by_name[name] for name in needed if name in by_name and by_name[name] != reference)
    return [{"ref": reference, "dependsOn": edges[reference]} for reference in sorted(edges)]


def _required_names(name: str) -> Iterator[str]:
    try:
        requirements = distribution(name).requires or []
    except PackageNotFoundError:
        return
    for requirement in requirements:
        found = _NAME.match(requirement)
        if found and "extra ==" not in requirement:
            yield found[0]


def _normalize(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
