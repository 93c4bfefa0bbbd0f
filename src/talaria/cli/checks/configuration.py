"""Checks of what somebody wrote down: settings and keys."""

from collections.abc import Iterator

from talaria.cli.checks.findings import Finding, fault, ok, warning
from talaria.cli.services import Services
from talaria.core.errors import Refused
from talaria.sessions.api_keys import ENVIRONMENT_KEY, check_strength
from talaria.settings.files import OWNER_ONLY_FILE
from talaria.settings.load import load
from talaria.settings.secrets import KNOWN_SECRETS, Secrets, mask, read_secrets


def look_at_settings(services: Services) -> Iterator[Finding]:
    """Report every fault of the settings."""
    faults = load(services.profile, services.environment).faults
    file = services.profile.config_file
    for one in faults:
        yield fault(str(one), "`talaria config edit` opens the file." if one.file == str(file) else "")
    if not faults:
        yield ok(f"No faults in {file}." if file.exists() else f"All are defaults; {file} does not exist.")


def look_at_keys(services: Services) -> Iterator[Finding]:
    """Report the keys and tokens that are set, what is wrong with their file, and that models need one."""
    secrets = read_secrets(services.profile, services.environment)
    for one in secrets.faults:
        if one.expected != f"mode {OWNER_ONLY_FILE:04o}":  # told, and mended, by the check of the files
            yield fault(str(one), f"Edit {services.profile.secrets_file}.")
    for name in secrets.names():
        yield _look_at_key(name, secrets)
    if not _has_model_key(secrets):
        yield warning(
            "No key of a model provider is set: a local model will be used, or the embedded one.",
            "`talaria config set OPENAI_API_KEY -` stores one; ANTHROPIC_API_KEY and others work the same way.",
        )


def _look_at_key(name: str, secrets: Secrets) -> Finding:
    value = secrets.get(name) or ""
    try:
        if name == ENVIRONMENT_KEY:
            check_strength(value)
    except Refused as error:
        return fault(str(error), "The API is not served with it.")
    return ok(f"{name} {mask(value)}, from {secrets.place(name)}.")


def _has_model_key(secrets: Secrets) -> bool:
    return any(secrets.get(known.name) for known in KNOWN_SECRETS if known.name.endswith("_API_KEY"))
