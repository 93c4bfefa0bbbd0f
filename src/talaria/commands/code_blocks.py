"""Find the blocks of code in Markdown."""

import re

_BLOCK = re.compile(
    r"^ {0,3}(`{3,}+|~{3,}+)[^`\n]*\n(.*?)(?:^ {0,3}\1[`~]*[ \t]*$|\Z)",
    re.MULTILINE | re.DOTALL,
)


def code_blocks(text: str) -> list[str]:
    """Return what stands in each block, without the fences; the last one may have no end yet."""
    return [body.rstrip("\n") for _, body in _BLOCK.findall(text)]
