"""Tool output for the model: cutting, masking of secrets and terminal control characters."""

import pytest

from talaria.tools.output import MASK, SecretMask, cut_output, make_readable


def test_short_output_is_unchanged() -> None:
    assert cut_output("abc", limit=3) == "abc"


def test_long_output_is_cut_in_the_middle_with_the_omitted_size() -> None:
    text = cut_output("a" * 50 + "é" * 100 + "z" * 50, limit=100, rest="ask for page 2")
    assert text == "a" * 50 + "\n[… 200 bytes omitted; ask for page 2 …]\n" + "z" * 50


@pytest.mark.parametrize(
    "key",
    [
        "sk-" + "a1B2" * 8,
        "sk-ant-" + "api03-" + "x_-y" * 8,
        "sk-proj-" + "Z" * 40,
        "ghp_" + "a" * 36,
        "github_pat_" + "a" * 40,
        "glpat-" + "a" * 20,
        "xoxb-" + "1234567890-abc",
        "AKIA" + "ABCDEFGHIJKLMNOP",
        "AIza" + "b" * 35,
        "hf_" + "c" * 34,
        "123456789:" + "AA" + "d" * 33,
        "eyJ" + "h" * 12 + ".eyJ" + "p" * 12 + "." + "s" * 20,
        "-----BEGIN OPENSSH PRIVATE KEY-----\nabc\ndef\n-----END OPENSSH PRIVATE KEY-----",
    ],
)
def test_well_known_keys_are_masked(key: str) -> None:
    assert SecretMask()(f"before {key} after") == f"before {MASK} after"


def test_passwords_in_urls_and_headers_are_masked() -> None:
    assert SecretMask()("git clone https://me:hunter22@host/x") == f"git clone https://me:{MASK}@host/x"
    assert SecretMask()("Authorization: Bearer abcdef.123") == f"Authorization: Bearer {MASK}"


def test_configured_secrets_are_masked_longest_first() -> None:
    assert (
        SecretMask(["hunter22", "hunter22000", "abcdefg"])("hunter22000 hunter22 abcdefg") == f"{MASK} {MASK} abcdefg"
    )


@pytest.mark.parametrize(
    "text",
    [
        "the sk-learn package, task-management-and-other-words",
        "http://host:8080/path and http://[::1]:80/",
        "it listens at http://127.0.0.1:42795",
        'see "http://127.0.0.1:8642" and go',
        "docker://python:3.12-slim",
        "at 12:30:45, ratio 12345678:9",
        "def hf_transfer(): return AKIA",
        "https://example.org/a:b@c",
    ],
)
def test_ordinary_text_is_not_masked(text: str) -> None:
    assert SecretMask()(text) == text


def test_lines_overwritten_with_carriage_returns_show_their_last_state() -> None:
    assert make_readable(b"1%\r99%\r100%\nnext\r\nlast\r") == "100%\nnext\nlast\n"


@pytest.mark.parametrize("line", [b"a" * 3_000_000 + b"\r", b"a\r" * 1_000_000, b"\r" * 1_000_000 + b"a"])
def test_long_overwritten_lines_take_linear_time(line: bytes) -> None:
    """Quadratic processing would take hours."""
    assert make_readable(line).strip() in {"a" * 3_000_000, "a"}
