"""Only access to the environment of the process."""

import os


def process_environment() -> dict[str, str]:
    """Return a copy of the current environment; all other code takes a mapping."""
    return dict(os.environ)


def read_environment_value(name: str, default: str = "") -> str:
    """Return the current value of a variable."""
    return os.environ.get(name, default)


def set_environment_variable(name: str, value: str) -> None:
    """Set a variable for this process and its children; an empty value removes it."""
    if value:
        os.environ[name] = value
    else:
        os.environ.pop(name, None)
