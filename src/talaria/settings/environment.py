"""The one place that looks at the environment of the process."""

import os


def process_environment() -> dict[str, str]:
    """A copy of the environment as it is now; everything else takes a mapping."""
    return dict(os.environ)
