"""Fetch the web app's JavaScript libraries, bundle each into one file, and record versions and hashes.

`python scripts/vendor.py` reads the versions from ``lock.json`` and writes files, licences and hashes next to it. It
needs `npm` (only `npm pack`, to download) and the `deno` of the development environment. Users need neither.
"""

import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

VENDOR = Path(__file__).parents[1] / "src/talaria/web/static/vendor"
ENTRIES = {
    "preact.js": """
export { Fragment, h, render } from "preact";
export { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
export { batch, computed, effect, signal, untracked, useSignal } from "@preact/signals";
""",
    "marked.js": 'export { lexer } from "marked";',
    "highlight.js": """
export { tokenizeWith } from "@speed-highlight/core/tokenize";
export * as languages from "@speed-highlight/core/languages";
""",
}


def main() -> int:
    """Fetch and bundle all libraries; return the exit code."""
    lock = json.loads((VENDOR / "lock.json").read_text())
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        licences = [fetch(name, package, work) for name, package in lock["packages"].items()]
        (work / "package.json").write_text(json.dumps({"dependencies": dict.fromkeys(lock["packages"], "*")}))
        (work / "deno.json").write_text('{"nodeModulesDir": "manual"}')
        lock["files"] = {name: bundle(name, source, work) for name, source in ENTRIES.items()}
    (VENDOR / "LICENSES.txt").write_text("\n\n".join(licences))
    (VENDOR / "lock.json").write_text(json.dumps(lock, indent=2) + "\n")
    return 0


def fetch(name: str, package: dict[str, Any], work: Path) -> str:
    """Unpack one package into ``node_modules``, record the digest of its archive, and return its licence."""
    command = ["npm", "pack", "--silent", f"{name}@{package['version']}"]
    archive = work / subprocess.run(command, cwd=work, check=True, capture_output=True, text=True).stdout.split()[-1]
    package["archive_sha256"] = hashlib.sha256(archive.read_bytes()).hexdigest()
    with tarfile.open(archive) as opened:
        opened.extractall(work / "unpacked", filter="data")
    target = work / "node_modules" / name
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(work / "unpacked/package", target)
    licence = target / "LICENSE"
    text = licence.read_text() if licence.exists() else json.loads((target / "package.json").read_text())["license"]
    return f"{name} {package['version']}\n\n{text.strip()}\n"


def bundle(name: str, source: str, work: Path) -> str:
    """Bundle one entry into the vendor folder, and return its SHA-256 digest."""
    (work / name).write_text(source)
    deno = Path(sys.executable).with_name("deno")
    options = ["--quiet", "--platform", "browser", "--minify", "-o", str(VENDOR / name)]
    command = [str(deno), "bundle", *options, str(work / name)]
    subprocess.run(command, cwd=work, check=True)
    types = f'// @ts-self-types="./{name.replace(".js", ".d.ts")}"\n// @ts-nocheck\n'
    (VENDOR / name).write_text(types + (VENDOR / name).read_text())
    return hashlib.sha256((VENDOR / name).read_bytes()).hexdigest()


if __name__ == "__main__":
    sys.exit(main())
