"""Checks of what somebody wrote down: settings and keys."""

from collections.abc import Iterator

from talaria.cli.checks.findings import Finding, fault, ok
from talaria.cli.services import Services
from talaria.core.errors import Refused
from talaria.sessions.api_keys import ENVIRONMENT_KEY, check_strength
from talaria.settings.files import OWNER_ONLY_FILE
from talaria.settings.load import load
from talaria.settings.secrets import Secrets, mask, read_secrets


def look_at_settings(services: Services) -> Iterator[Finding]:
    """Report every fault of the settings."""
    faults = load(services.profile, services.environment).faults
    file = services.profile.config_file
    for one in faults:
        yield fault(str(one), "`talaria config edit` opens the file." if one.file == str(file) else "")
    if not faults:
        yield ok(f"No faults in {file}." if file.exists() else f"All are defaults; {file} does not exist.")


def look_at_keys(services: Services) -> Iterator[Finding]:
    """Report the keys and tokens that are set, and what is wrong with their file."""
    secrets = read_secrets(services.profile, services.environment)
    for one in secrets.faults:
        if one.expected != f"mode {OWNER_ONLY_FILE:04o}":  # reported, and repaired, by the check of the files
            yield fault(str(one), f"Edit {services.profile.secrets_file}.")
    for name in secrets.names():
        yield _look_at_key(name, secrets)
    if not secrets.names():
        yield ok("No keys or tokens are set.")


def _look_at_key(name: str, secrets: Secrets) -> Finding:
    value = secrets.get(name) or ""
    try:
        if name == ENVIRONMENT_KEY:
            check_strength(value)
    except Refused as error:
        return fault(str(error), "The API is not served with it.")
    return ok(f"{name} {mask(value)}, from {secrets.place(name)}.")
