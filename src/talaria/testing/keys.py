"""The keys of a keyboard by name, as a terminal sends them."""

_PLAIN = {
    "enter": "\r", "tab": "\t", "esc": "\x1b", "backspace": "\x7f", "space": " ", "s-tab": "\x1b[Z",
    "c-space": "\0", "c-@": "\0", "c-backspace": "\x08", "c-\\": "\x1c", "c-]": "\x1d", "c-^": "\x1e", "c-_": "\x1f",
    "f1": "\x1bOP", "f2": "\x1bOQ", "f3": "\x1bOR", "f4": "\x1bOS",
}  # fmt: skip
_LETTERED = {"up": "A", "down": "B", "right": "C", "left": "D", "end": "F", "home": "H"}
_NUMBERED = {
    "insert": 2, "delete": 3, "pageup": 5, "pagedown": 6,
    "f5": 15, "f6": 17, "f7": 18, "f8": 19, "f9": 20, "f10": 21, "f11": 23, "f12": 24,
}  # fmt: skip
_SHIFT, _ALT, _CONTROL = 1, 2, 4
_MODIFIERS = {"s": _SHIFT, "a": _ALT, "c": _CONTROL}


def key_bytes(key: str, *, application: bool = False) -> bytes:
    """Return what a key sends: ``enter``, ``c-c``, ``s-tab``, ``a-enter``, ``c-left``, ``f5``, or a character.

    ``application`` is how programs that asked for it get the arrows.
    """
    if key in _PLAIN or len(key) == 1:
        return _PLAIN.get(key, key).encode()
    base, modifiers = _split_key(key)
    if base in _LETTERED:
        opening = "\x1b[" if modifiers or not application else "\x1bO"
        return f"{opening}{f'1;{1 + modifiers}' if modifiers else ''}{_LETTERED[base]}".encode()
    if base in _NUMBERED:
        return f"\x1b[{_NUMBERED[base]}{f';{1 + modifiers}' if modifiers else ''}~".encode()
    if modifiers == _CONTROL and len(base) == 1 and base.isascii() and base.isalpha():
        return bytes([ord(base.upper()) - ord("@")])
    if modifiers & _ALT:
        return b"\x1b" + key_bytes(_strip_alt(key), application=application)
    raise ValueError(f"Unknown key {key!r}; keys are named like enter, tab, s-tab, c-c, a-enter, up and f5.")


def _split_key(key: str) -> tuple[str, int]:
    modifiers = 0
    while len(key) > 2 and key[1] == "-" and key[0] in _MODIFIERS:
        modifiers |= _MODIFIERS[key[0]]
        key = key[2:]
    return key, modifiers


def _strip_alt(key: str) -> str:
    before, _, after_modifier = key.partition("a-")
    return before + after_modifier
