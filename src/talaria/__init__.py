"""A personal AI agent in the terminal, in chats and in the browser."""

__version__ = "0.1.0"
__all__ = ["Agent", "Effect", "__version__", "tool"]

TYPE_CHECKING = False  # type checkers know the name; importing it would cost `talaria --version` half its time
if TYPE_CHECKING:
    from talaria.app.library import Agent, Effect, tool


def __getattr__(name: str) -> object:
    """Load the library when it is asked for: `import talaria` alone costs nothing."""
    if name in ("Agent", "Effect", "tool"):
        from talaria.app import library  # noqa: PLC0415 (loaded when one of these is used)

        return getattr(library, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
