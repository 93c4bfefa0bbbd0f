"""When a running gateway uses a changed setting; nothing is said where none runs."""

from talaria.cli.services import Services


def remark_gateway(services: Services, *, live: bool) -> None:
    """Print when the gateway of this profile uses a change, if one is running on this machine."""
    # Only a change needs this: reading the settings does not wait for it.
    from talaria.sessions.ending import still_running  # noqa: PLC0415 -- see above

    if still_running(services.profile.logs_folder):
        now, later = "The running gateway picks this up now.", "Run `talaria gateway restart` to use it there."
        services.terminal.note(now if live else later)
