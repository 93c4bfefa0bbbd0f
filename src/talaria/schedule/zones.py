"""The time zone of this machine by its name, so that it can be kept with a job."""

from collections.abc import Mapping
from pathlib import Path
from zoneinfo import ZoneInfo

_LOCAL, _NAMED = Path("/etc/localtime"), Path("/etc/timezone")
_FOLDER = "zoneinfo/"
UTC = "UTC"


def system_zone(environment: Mapping[str, str]) -> str:
    """Return the zone that the environment names, else that of the system; UTC where neither is known."""
    candidates = (environment.get("TZ", "").lstrip(":"), _linked(), _written())
    return next((one.rpartition(_FOLDER)[2] for one in candidates if _is_zone(one.rpartition(_FOLDER)[2])), UTC)


def _linked() -> str:
    try:
        return str(_LOCAL.resolve())
    except OSError:
        return ""


def _written() -> str:
    try:
        return _NAMED.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _is_zone(name: str) -> bool:
    try:
        return bool(name) and ZoneInfo(name).key == name
    except (KeyError, ValueError, OSError):
        return False
