"""Session request from command-line options."""

import argparse
from pathlib import Path

from talaria.runtime.open_session import OpenRequest

SOURCE = "cli"


def build_open_request(arguments: argparse.Namespace, surface: str) -> OpenRequest:
    """Return the session request for an interactive terminal."""
    return OpenRequest(
        source=SOURCE,
        folder=Path.cwd(),
        resume=arguments.resume,
        latest=arguments.latest,
        model=arguments.model,
        surface=surface,
        lasting=True,
    )
