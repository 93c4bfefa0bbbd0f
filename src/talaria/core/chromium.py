"""Find an installed Chromium or Chrome, and decide how it has to be started on this machine."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from talaria.core.errors import ToolFailed

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
_PLACES = (
    "/usr/lib/chromium/chromium",
    "/opt/google/chrome/chrome",
    "/snap/bin/chromium",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
_PLAYWRIGHT = ("chromium-*/chrome-linux*/chrome", "chromium-*/chrome-mac*/*.app/Contents/MacOS/*")
_SMALL_SHARED_MEMORY = 256 * 1024 * 1024
MISSING_EXTRA = "Playwright isn't installed. Run `pip install 'talaria-agent[browser]'`."
MISSING_BROWSER = (
    "No Chromium or Chrome was found. Install one, for example with `apt install chromium`, or set "
    "browser.executable_path."
)


def has_playwright() -> bool:
    """Return whether the extra is installed; imports nothing."""
    from importlib.util import find_spec  # noqa: PLC0415 (loaded where the toolset is enabled)

    return find_spec("playwright") is not None


def find_executable(configured: str, environment: Mapping[str, str]) -> str:
    """Return the path of the browser to start; empty if there is none.

    The configured one, else the first on the PATH, in a usual place, or among those that Playwright has downloaded.
    """
    if configured:
        return shutil.which(str(Path(configured).expanduser()), path=environment.get("PATH")) or ""
    for name in _NAMES:
        if found := shutil.which(name, path=environment.get("PATH")):
            return found
    return next(filter(_is_executable, (*_PLACES, *_list_downloaded(environment))), "")


def require_executable(configured: str, environment: Mapping[str, str]) -> str:
    """Return the path of the browser to start, or raise `ToolFailed` that says what to install."""
    if not has_playwright():
        raise ToolFailed(MISSING_EXTRA)
    found = find_executable(configured, environment)
    if not found and configured:
        raise ToolFailed(f"browser.executable_path is {configured}, which is not a program that can be started.")
    if not found:
        raise ToolFailed(MISSING_BROWSER)
    return found


def has_display(environment: Mapping[str, str]) -> bool:
    """Return whether a window can be shown."""
    is_mac = os.uname().sysname == "Darwin"
    return is_mac or bool(environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY"))


def is_root() -> bool:
    """Return whether this process runs as root, where Chromium refuses to start with its sandbox."""
    return os.geteuid() == 0


def has_small_shared_memory() -> bool:
    """Return whether /dev/shm is too small for a browser, as it is in many containers."""
    try:
        space = os.statvfs("/dev/shm")  # noqa: S108 (asked for its size)
    except OSError:
        return False
    return space.f_blocks * space.f_frsize < _SMALL_SHARED_MEMORY


def _is_executable(path: str) -> bool:
    return os.access(path, os.X_OK)


def _list_downloaded(environment: Mapping[str, str]) -> list[str]:
    """Return the browsers that Playwright has downloaded, newest first."""
    home = Path(environment.get("HOME", "/nonexistent"))
    folders: list[str | Path] = [environment.get("PLAYWRIGHT_BROWSERS_PATH", ""), home / ".cache/ms-playwright",
               home / "Library/Caches/ms-playwright"]  # fmt: skip
    found = (path for one in folders if one for pattern in _PLAYWRIGHT for path in Path(one).glob(pattern))
    return sorted(map(str, found), reverse=True)
