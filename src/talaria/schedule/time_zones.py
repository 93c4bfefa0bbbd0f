"""The name of this machine's time zone, so that it can be stored with a job."""

from collections.abc import Mapping
from pathlib import Path
from zoneinfo import ZoneInfo

_LOCAL_LINK, _NAME_FILE = Path("/etc/localtime"), Path("/etc/timezone")
_FOLDER = "zoneinfo/"
UTC = "UTC"


def system_zone(environment: Mapping[str, str]) -> str:
    """Return the zone in the environment, otherwise the system's; UTC if neither is known."""
    candidates = (environment.get("TZ", "").lstrip(":"), _read_link(), _read_name())
    return next((one.rpartition(_FOLDER)[2] for one in candidates if _is_zone(one.rpartition(_FOLDER)[2])), UTC)


def _read_link() -> str:
    try:
        return str(_LOCAL_LINK.resolve())
    except OSError:
        return ""


def _read_name() -> str:
    try:
        return _NAME_FILE.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _is_zone(name: str) -> bool:
    try:
        return bool(name) and ZoneInfo(name).key == name
    except (KeyError, ValueError, OSError):
        return False
