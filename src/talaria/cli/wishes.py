"""Which conversation a command line asks for."""

import argparse
from pathlib import Path

from talaria.sessions.chat import ChatWish

SOURCE = "cli"


def wish_of(arguments: argparse.Namespace, surface: str) -> ChatWish:
    """Return what the options say, for a terminal that stays open and at which somebody sits."""
    return ChatWish(
        source=SOURCE,
        folder=Path.cwd(),
        resume=arguments.resume,
        latest=arguments.latest,
        model=arguments.model,
        surface=surface,
        lasting=True,
    )
