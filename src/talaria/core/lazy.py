"""Import modules on first use, where the module name is data."""

from importlib import import_module
from types import ModuleType


def load_module(name: str) -> ModuleType:
    """Import a module by name."""
    return import_module(name)
