"""Session request from command-line options."""

import argparse
from pathlib import Path

from talaria.runtime.open_session import LatestSession, OpenRequest, ResumeSession, SurfaceInfo

SOURCE = "cli"


def build_open_request(arguments: argparse.Namespace, instructions: str) -> OpenRequest:
    """Return the session request for an interactive terminal."""
    session: ResumeSession | LatestSession | None = LatestSession() if arguments.latest else None
    return OpenRequest(
        surface=SurfaceInfo(source=SOURCE, folder=Path.cwd(), instructions=instructions, lasting=True),
        session=ResumeSession(arguments.resume) if arguments.resume else session,
        model=arguments.model,
        plan=arguments.plan,
    )
