"""Colours of the chat by theme.

Imported before the prompt is shown, so it must stay light.
"""

from collections.abc import Mapping

from prompt_toolkit.styles import BaseStyle, Style

_DARK = {
    "mark": "bold ansicyan",
    "hint": "ansibrightblack",
    "status": "ansibrightblack",
    "status.title": "ansiwhite",
    "status.warning": "ansiyellow",
    "question": "bold",
    "chosen": "bold ansicyan",
    "choice": "",
    "completion-menu": "bg:#262626 #d0d0d0",
    "completion-menu.completion.current": "bg:#005f87 #ffffff",
    "completion-menu.meta.completion": "bg:#303030 #a8a8a8",
    "completion-menu.meta.completion.current": "bg:#005f87 #e4e4e4",
    "scrollbar.background": "bg:#303030",
    "scrollbar.button": "bg:#585858",
}


_LIGHT = {
    **_DARK,
    "mark": "bold ansiblue",
    "hint": "#6c6c6c",
    "status": "#5f5f5f",
    "status.title": "#1c1c1c",
    "status.warning": "#875f00",
    "chosen": "bold ansiblue",
    "completion-menu": "bg:#e4e4e4 #1c1c1c",
    "completion-menu.completion.current": "bg:#afd7ff #000000",
    "completion-menu.meta.completion": "bg:#dadada #4e4e4e",
    "completion-menu.meta.completion.current": "bg:#afd7ff #262626",
}


_MONO = {
    "mark": "bold",
    "question": "bold",
    "chosen": "bold",
    "completion-menu": "noreverse",
    "completion-menu.completion.current": "reverse",
}


_STYLES: Mapping[str, BaseStyle] = {
    "dark": Style.from_dict(_DARK),
    "light": Style.from_dict(_LIGHT),
    "mono": Style.from_dict(_MONO),
}


def style_for(theme: str) -> BaseStyle:
    """Return the styles of a theme."""
    return _STYLES[theme]


def resolve_theme(configured: str, environment: Mapping[str, str]) -> str:
    """Return the requested theme, or one that fits the terminal's colours and background; default dark."""
    if environment.get("NO_COLOR"):
        return "mono"
    if configured in _STYLES:
        return configured
    term = environment.get("TERM", "")
    if term.startswith("vt") or term.endswith(("-m", "-mono")):
        return "mono"
    background = environment.get("COLORFGBG", "").rpartition(";")[2]
    return "light" if background in {"7", "15"} else "dark"
