"""The one place that looks at the environment of the process."""

import os


def process_environment() -> dict[str, str]:
    """A copy of the environment as it is now; everything else takes a mapping."""
    return dict(os.environ)


def environment_value(name: str, default: str = "") -> str:
    """Return one variable as it is now."""
    return os.environ.get(name, default)


def move_variable(name: str, value: str) -> None:
    """Change one variable for this process and its children; an empty value removes it."""
    if value:
        os.environ[name] = value
    else:
        os.environ.pop(name, None)
