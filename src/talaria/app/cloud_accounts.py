"""Accounts with clouds: their addresses and credentials, from the variables that their own programs use."""

import re
from pathlib import Path

from talaria.http_client.client import HttpPool
from talaria.providers.presets import AccessKind, Preset
from talaria.providers.settings import RequestAuthorizer
from talaria.settings.secrets import Secrets

_NEEDED: dict[AccessKind, str] = {
    "aws": "AWS_BEARER_TOKEN_BEDROCK, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "entra": "AZURE_OPENAI_API_KEY, or AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET",
    "google": "GOOGLE_APPLICATION_CREDENTIALS, the path of a credentials file",
}
_VARIABLE = re.compile(r"\{([A-Z0-9_|]+)\}")
_GOOGLE_DEFAULT = ".config/gcloud/application_default_credentials.json"
_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")


def fill_url(url: str, secrets: Secrets) -> str:
    """Return an address with the values of the variables that it names; unset ones stay."""
    return _VARIABLE.sub(lambda found: _first(found[1].split("|"), secrets) or found[0], url)


def missing_variables(url: str) -> list[str]:
    """Return the variables that an address still needs."""
    return [found.split("|")[0] for found in _VARIABLE.findall(url)]


def has_access(preset: Preset, secrets: Secrets) -> bool:
    """Return whether something other than a key gives access to a provider."""
    match preset.access:
        case "aws":
            return bool(secrets.get("AWS_ACCESS_KEY_ID") and secrets.get("AWS_SECRET_ACCESS_KEY"))
        case "entra":
            return all(map(secrets.get, ("AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET")))
        case "google":
            return _google_file(secrets).is_file()
    return False


def explain_missing_access(preset: Preset, secrets: Secrets) -> str:
    """Return what a provider needs for access, or which file of credentials is missing."""
    if preset.access == "google" and secrets.get("GOOGLE_APPLICATION_CREDENTIALS"):
        return f"GOOGLE_APPLICATION_CREDENTIALS names {_google_file(secrets)}, which isn't a file."
    return f"{preset.title} needs {_NEEDED[preset.access]}."


def make_authorizer(preset: Preset, secrets: Secrets, http: HttpPool) -> RequestAuthorizer | None:
    """Return what stands in for a key, if the provider has such a thing and it is configured."""
    if preset.access == "key" or not has_access(preset, secrets):
        return None
    from talaria.http_client import bearer_tokens  # noqa: PLC0415 (loaded for a provider in a cloud)
    from talaria.providers import aws_signer  # noqa: PLC0415 (loaded for a provider in a cloud)

    def value(name: str) -> str:
        return secrets.get(name) or ""

    if preset.access == "aws":
        credentials = aws_signer.AwsCredentials(
            value("AWS_ACCESS_KEY_ID"), value("AWS_SECRET_ACCESS_KEY"), value("AWS_SESSION_TOKEN")
        )
        return aws_signer.AwsSigner(credentials, _first(_REGIONS, secrets))
    if preset.access == "google":
        return bearer_tokens.BearerToken(bearer_tokens.GoogleTokenRequest(_google_file(secrets)), http)
    request = bearer_tokens.EntraTokenRequest(
        value("AZURE_TENANT_ID"),
        value("AZURE_CLIENT_ID"),
        value("AZURE_CLIENT_SECRET"),
        value("AZURE_AUTHORITY_HOST") or bearer_tokens.ENTRA_AUTHORITY,
    )
    return bearer_tokens.BearerToken(request, http)


def _google_file(secrets: Secrets) -> Path:
    named = secrets.get("GOOGLE_APPLICATION_CREDENTIALS")
    return Path(named).expanduser() if named else Path.home() / _GOOGLE_DEFAULT


def _first(names: list[str] | tuple[str, ...], secrets: Secrets) -> str:
    return next((found for name in names if (found := secrets.get(name))), "").rstrip("/")
