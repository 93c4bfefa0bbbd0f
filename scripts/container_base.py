"""Make what the container tests build Talaria's image from, once per version of its lock files.

    python -m scripts.container_base [--remove]

The base image has the files of Debian packages that are installed on this machine. The wheels of the lock files come
from the index that pip uses here; the image is then built without a network. All of it is in ``.container-base/``,
where podman has a storage of its own. Continues without it where it can't be made.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / ".container-base"
_STAMP = FOLDER / "made.stamp"
BASE = "localhost/talaria-base:latest"
PYTHON = "/usr/bin/python3"
_LOCKS = ("build", "container")
_PACKAGES = ("base-passwd", "coreutils", "dash", "passwd", "python3-venv", "tzdata")
_LEFT_OUT = re.compile(r"/usr/share/(?:doc|info|lintian|locale|man)/")
_NAME = re.compile(r"[^\s:(|,]+")


def main() -> int:
    """Make the base image, the wheels, and the layers with the packages; report what is missing."""
    if "--remove" in sys.argv[1:]:
        remove_all()
        return 0
    if problem := find_problem():
        print(f"No base image for the container tests: {problem}. They are skipped.")
        return 0
    if is_made():
        return 0
    print("== base image and packages for the container tests: 620 MB, once", flush=True)
    try:
        remove_all()
        FOLDER.mkdir(exist_ok=True)
        import_base()
        download_wheels()
        build("builder", "localhost/talaria-builder:latest")
    except subprocess.CalledProcessError as error:
        print((error.stderr or error.stdout or "")[-2000:])
        print("The base image couldn't be made: the container tests are skipped. The next run tries again.")
        return 0
    _STAMP.write_text(compute_key())
    return 0


def find_problem() -> str:
    """Return why no image can be built here; empty if one can."""
    if os.geteuid() != 0:
        return "this isn't root"
    for program in ("podman", "dpkg-query"):
        if shutil.which(program) is None:
            return f"{program} isn't installed"
    if subprocess.run(["dpkg-query", "-W", *_PACKAGES], capture_output=True, check=False).returncode:
        return f"not all of these Debian packages are installed: {', '.join(_PACKAGES)}"
    return ""


def is_made() -> bool:
    """Return whether the base image and the wheels belong to the lock files of this checkout."""
    return _STAMP.exists() and _STAMP.read_text() == compute_key()


def compute_key() -> str:
    """Return a digest of all that the base image and the layers with the packages depend on."""
    parts = [(ROOT / f"requirements/{name}.lock").read_bytes() for name in _LOCKS]
    parts += [(ROOT / "Containerfile").read_bytes().partition(b"\nFROM builder")[0], Path(__file__).read_bytes()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def podman(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run podman on the storage in this checkout; raises `subprocess.CalledProcessError`."""
    return subprocess.run(podman_command(*arguments), cwd=ROOT, check=True, capture_output=True, text=True)


def podman_command(*arguments: str) -> list[str]:
    """Return the command that runs podman on the storage in this checkout."""
    # the path of podman's sockets is limited to 50 characters, so they aren't in the checkout
    sockets = f"/run/talaria-{zlib.crc32(str(FOLDER).encode()):08x}"
    return ["podman", "--root", str(FOLDER / "storage"), "--runroot", sockets, *arguments]


def build(target: str, tag: str) -> None:
    """Build a stage of the Containerfile, or the whole image, from the base image and the wheels, without a network."""
    mounts = ("--volume", f"{FOLDER}/wheels:/wheels:ro", "--volume", f"{FOLDER}/pip.conf:/etc/pip.conf:ro")
    options = ("--format=docker", "--pull=never", "--network=none", f"--build-arg=BASE={BASE}")
    stage = (f"--target={target}",) if target else ()
    podman("build", *options, *mounts, *stage, "--tag", tag, ".")


def remove_all() -> None:
    """Remove the folder with its storage, which podman has mounted."""
    if (FOLDER / "storage").exists():
        podman("rm", "--all", "--force", "--time=0")
        for mount in ("overlay", "vfs"):
            subprocess.run(["umount", FOLDER / "storage" / mount], capture_output=True, check=False)
    shutil.rmtree(FOLDER, ignore_errors=True)


def import_base() -> None:
    """Import the files of installed Debian packages as an image."""
    with tempfile.NamedTemporaryFile(dir=FOLDER, suffix=".tar") as file:
        with tarfile.open(fileobj=file, mode="w") as archive:
            for path in sorted(set(list_files())):
                archive.add(path, recursive=False)
            for name in ("passwd", "group"):
                archive.add(f"/usr/share/base-passwd/{name}.master", f"etc/{name}")
        file.flush()
        podman("import", "--quiet", file.name, BASE)


def list_files() -> Iterator[str]:
    """Yield the files of the packages with their real folders, as ``/bin`` is a link."""
    yield "/etc/ld.so.cache"
    yield from (f"/{name}" for name in ("bin", "lib", "lib64", "sbin", "tmp") if os.path.lexists(f"/{name}"))
    listed = subprocess.run(["dpkg-query", "-L", *find_packages()], capture_output=True, text=True, check=True)
    for line in listed.stdout.splitlines():
        folder, _, name = line.rpartition("/")
        path = f"{os.path.realpath(folder)}/{name}".replace("//", "/")
        if name not in ("", ".") and os.path.lexists(path) and not _LEFT_OUT.match(path):
            yield path


def find_packages() -> list[str]:
    """Return the installed packages that Python and ``useradd`` need, with all that these depend on."""
    format_ = "${Package}\t${Provides}\t${Pre-Depends}, ${Depends}\n"
    installed = subprocess.run(["dpkg-query", "-W", "-f", format_], capture_output=True, text=True, check=True)
    needs: dict[str, list[str]] = {}
    for line in installed.stdout.splitlines():
        package, provided, needed = line.split("\t")
        for name in (package, *_NAME.findall(re.sub(r"\([^)]*\)", "", provided))):
            needs.setdefault(name, [package, *_NAME.findall(re.sub(r"\([^)]*\)", "", needed))])
    found: set[str] = set()
    pending = list(_PACKAGES)
    while pending:
        name = pending.pop()
        if name in needs and needs[name][0] not in found:
            found.add(needs[name][0])
            pending += needs[name][1:]
    return sorted(found)


def download_wheels() -> None:
    """Download what the lock files name with pip as it is configured here, for the Python of the base image."""
    (FOLDER / "pip.conf").write_text("[global]\nno-index = true\nfind-links = /wheels\n")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([PYTHON, "-m", "venv", folder], check=True, capture_output=True, text=True)
        command = [f"{folder}/bin/pip", "--disable-pip-version-check", "--no-input", "download", "--quiet", "--no-deps"]
        for lock in _LOCKS:
            options = ["--require-hashes", "--dest", f"{FOLDER}/wheels", "-r", f"requirements/{lock}.lock"]
            subprocess.run([*command, *options], cwd=ROOT, check=True, capture_output=True, text=True)


if __name__ == "__main__":
    sys.exit(main())
