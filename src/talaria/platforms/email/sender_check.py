"""Verification of a mail's sender by the checks that the receiving server reports (RFC 8601)."""

import re
from collections.abc import Iterable, Iterator, Sequence
from email.message import Message
from email.utils import getaddresses

from msgspec import Struct

from talaria.platforms.email.settings import NO_AUTHSERV_ID, is_address

_HEADER = "authentication-results"
_UNUSUAL = re.compile(r"[^A-Za-z0-9@._+-]")
_METHOD = re.compile(r"\s*([a-z][a-z0-9-]*)(?:/\d+)?\s*=\s*([a-z]+)\b(.*)", re.IGNORECASE | re.DOTALL)
_HOST = re.compile(r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?", re.IGNORECASE)


class CheckResult(Struct, frozen=True):
    """The result of one method, for example ``dkim`` with ``pass``, and its properties, for example ``header.d``."""

    method: str
    result: str
    properties: dict[str, str]


class UnverifiedSender(Exception):
    """The sender of a mail isn't proved; the text says why."""


def verify_sender(mail: Message, trusted: Sequence[str], received_above: int | None = None) -> tuple[str, str]:
    """Return address and name of the sender; raises `UnverifiedSender` unless the receiving server vouches for it.

    DMARC must have passed; where the server reports none, DKIM or SPF must have passed for the sender's own domain, or
    the sender must have logged in to that server.
    """
    address, name = _read_from(mail)
    checks = read_checks(mail, trusted, received_above)
    if not checks:
        raise UnverifiedSender("the receiving server reports no check of the sender")
    domain = address.rpartition("@")[2]
    dmarc = [check for check in checks if check.method == "dmarc"]
    if any(check.result not in ("pass", "none", "bestguesspass") for check in dmarc):
        raise UnverifiedSender(f"DMARC of {domain} failed")
    if any(_proves(check, address, domain) for check in checks):
        return address, name
    results = ", ".join(f"{check.method}={check.result}" for check in checks)
    raise UnverifiedSender(f"no check proves {domain}: {results}")


def read_checks(mail: Message, trusted: Sequence[str], received_above: int | None = None) -> list[CheckResult]:
    """Return what the receiving server reports.

    Servers add their report above what was there, so only the first report under each trusted name counts, and none
    below the first report under another name: anything further down may have been written by the sender.
    """
    checks: list[CheckResult] = []
    seen: set[str] = set()
    above = 0
    for name, value in mail.raw_items():
        above += name.lower() == "received"
        if name.lower() != _HEADER:
            continue
        server, results = _split_report(str(value))
        if not is_trusted(server or NO_AUTHSERV_ID, trusted) or (received_above is not None and above > received_above):
            break
        if server not in seen:
            seen.add(server)
            checks += results
    return checks


def find_reporting_server(mail: Message) -> str:
    """Return the name under which the uppermost report was written; ``none`` without a name, empty without a report."""
    for name, value in mail.raw_items():
        if name.lower() == _HEADER:
            return _split_report(str(value))[0] or NO_AUTHSERV_ID
    return ""


def is_trusted(server: str, trusted: Sequence[str]) -> bool:
    """Return whether a name is one of the trusted ones; ``*.`` at their start stands for any host there."""
    return any(server == one or (one.startswith("*.") and server.endswith(one[1:])) for one in trusted)


def _read_from(mail: Message) -> tuple[str, str]:
    fields = [str(value) for name, value in mail.raw_items() if name.lower() == "from"]
    if len(fields) != 1:
        raise UnverifiedSender("it doesn't have exactly one From header")
    found = getaddresses([str(mail.get("From"))])
    raw = getaddresses([fields[0]])
    if len(found) != 1 or len(raw) != 1:
        raise UnverifiedSender("it doesn't name exactly one sender")
    name, address = found[0][0], found[0][1].strip().lower()
    if not is_address(address) or address != raw[0][1].strip().lower():
        raise UnverifiedSender("its sender has no valid address")
    return address, name


def _split_report(value: str) -> tuple[str, Iterable[CheckResult]]:
    """Return the name of the server, in lower case, and its results; the name is empty if it gives none."""
    parts = _simplify(value).split(";")
    head = parts[0].split()
    if len(head) and "=" not in parts[0] and _HOST.fullmatch(head[0]):
        return head[0].lower(), list(_read_results(parts[1:]))
    return "", list(_read_results(parts))


def _read_results(parts: Iterable[str]) -> Iterator[CheckResult]:
    for part in parts:
        if found := _METHOD.match(part):
            pairs = (word.lower().partition("=") for word in found[3].split())
            properties = {name: value for name, _, value in pairs if "." in name}
            yield CheckResult(found[1].lower(), found[2].lower(), properties)


def _simplify(value: str) -> str:
    """Return a report without comments, and with quoted text reduced to letters and digits.

    Addresses that the sender chose are quoted inside it, and must not be taken for results. In a comment quotation
    marks have no meaning, so an address with them could end the comment: such a report is not trusted.
    """
    parts, depth, position = [], 0, 0
    while position < len(value):
        character = value[position]
        if depth and character == '"':
            raise UnverifiedSender("the report of the receiving server is ambiguous")
        if character == '"':
            end = _find_closing_quote(value, position)
            parts.append(_UNUSUAL.sub("_", value[position + 1 : end]))
            position = end
        elif character == "\\" and depth:
            position += 1
        elif character in "()":
            depth = max(depth + (1 if character == "(" else -1), 0)
            parts.append(" ")
        elif not depth:
            parts.append(character)
        position += 1
    if depth:
        raise UnverifiedSender("the report of the receiving server is incomplete")
    return "".join(parts)


def _find_closing_quote(value: str, start: int) -> int:
    position = start + 1
    while position < len(value) and value[position] != '"':
        position += 2 if value[position] == "\\" else 1
    if position >= len(value):
        raise UnverifiedSender("the report of the receiving server is incomplete")
    return position


def _proves(check: CheckResult, address: str, domain: str) -> bool:
    if check.result != "pass":
        return False
    match check.method:
        case "dmarc":
            return check.properties.get("header.from") == domain
        case "dkim":
            signer = check.properties.get("header.d") or check.properties.get("header.i", "").rpartition("@")[2]
            return _is_aligned(signer, domain)
        case "spf":
            return check.properties.get("smtp.mailfrom", "").rpartition("@")[2] == domain
        case "auth":
            return check.properties.get("smtp.auth") == address
        case _:
            return False


def _is_aligned(signer: str, domain: str) -> bool:
    """Return whether a signature is by the domain or one above it; one below may belong to anyone."""
    return bool(signer) and "." in signer and (domain == signer or domain.endswith(f".{signer}"))
