"""Note on when a running gateway uses a changed setting."""

from talaria.cli.services import Services


def note_gateway_reload(services: Services, *, live: bool) -> None:
    """Print when the profile's gateway uses a change, if one is running on this machine."""
    # Only a change needs this: reading the settings does not wait for it.
    from talaria.observability.shutdown_report import list_running  # noqa: PLC0415 -- see above

    if list_running(services.profile.logs_folder):
        now, later = "The running gateway picks this up now.", "Run `talaria gateway restart` to use it there."
        services.terminal.note(now if live else later)
