"""Themes: styles of a reply as ANSI style numbers."""

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct


class Theme(Struct, frozen=True, kw_only=True):
    """Styles of a reply.

    Each style is the text between ``ESC [`` and ``m``. If `inline_code` or `strike` is empty, the source markup stays.
    ``pygments`` names the code style; its backgrounds are ignored.
    """

    name: str
    pygments: str
    heading1: str
    heading2: str
    heading: str
    inline_code: str
    code: str
    quote: str
    link: str
    tool: str
    error: str
    dim: str
    added: str
    removed: str
    bold: str = "1"
    italic: str = "3"
    strike: str = "9"


_DARK = Theme(
    name="dark",
    pygments="github-dark",
    heading1="1;4;38;5;117",
    heading2="1;38;5;117",
    heading="1;38;5;152",
    inline_code="38;5;180",
    code="38;5;252",
    quote="38;5;249",
    link="4;38;5;75",
    tool="38;5;108",
    error="38;5;210",
    dim="38;5;245",
    added="38;5;114",
    removed="38;5;210",
)
_LIGHT = Theme(
    name="light",
    pygments="xcode",
    heading1="1;4;38;5;24",
    heading2="1;38;5;24",
    heading="1;38;5;23",
    inline_code="38;5;89",
    code="38;5;236",
    quote="38;5;239",
    link="4;38;5;25",
    tool="38;5;22",
    error="38;5;124",
    dim="38;5;242",
    added="38;5;22",
    removed="38;5;124",
)
_MONO = Theme(
    name="mono",
    pygments="bw",
    heading1="1;4",
    heading2="1",
    heading="1;3",
    inline_code="",
    code="",
    quote="3",
    link="4",
    tool="3",
    error="1",
    dim="",
    added="1",
    removed="3",
    strike="",
)

THEMES: Mapping[str, Theme] = MappingProxyType({theme.name: theme for theme in (_DARK, _LIGHT, _MONO)})
