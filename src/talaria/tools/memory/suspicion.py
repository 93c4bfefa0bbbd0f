"""What must not enter a memory that every later conversation begins with."""

import re
import unicodedata

_JOINERS = "\u200c\u200d"  # hold emoji and Persian or Indic letters together
# Looked for with `re.search`, which compiles and keeps them: most conversations never write to a memory.
_SECRETS = (
    r"-----BEGIN [A-Z ]*PRIVATE KEY",
    r"\b(sk|pk|rk)[-_](live|test|ant|or|proj)?[-_]?[A-Za-z0-9_-]{16,}",
    r"\b(gh[opsru]_|github_pat_|glpat-|xox[abeoprs]-|AKIA|ASIA|AIza|ya29\.|hf_|npm_)[A-Za-z0-9_-]{10,}",
    r"\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.",
    r"://[^\s/:@]+:[^\s/@]{3,}@",
    (
        r"(?i)\b(password|passwort|passwd|passphrase|secret|api[ _-]?key|access[ _-]?key|token)\s*(is|=|:)\s*"
        r"(?=\S*[\d_#$%&*+=@^~])\S{6,}"
    ),
)
_INSTRUCTIONS = (
    r"\b(ignore|disregard|forget|override)\b.{0,40}\b(instructions?|prompts?|rules?|guidelines?|messages?)\b",
    r"\byou are (now|no longer)\b",
    r"\b(new|real|actual|updated) (system )?(instructions?|prompt)\s*:",
    r"\bsystem prompt\b",
    r"\b(do not|don't|never) (tell|inform|mention|reveal)\b.{0,30}\b(user|person|owner|human)\b",
    r"\b(without|bypass\w*|skip\w*)\b.{0,20}\b(asking|approval|confirmation|permission)\b",
    r"</?(system|assistant|user|instructions?|tool_call)>|<\|[a-z_]+\|>|\[/?INST\]",
    r"\b(curl|wget)\b.{0,80}\$\{?\w*(key|token|secret|password)",
    r"\b(cat|send|upload|post|exfiltrate)\b.{0,40}(\.env\b|id_rsa|\.ssh/|credentials)",
)


def what_is_wrong(text: str) -> str:
    """Return why a text must not be remembered, or nothing."""
    if hidden := {char for char in text if _is_hidden(char)}:
        names = ", ".join(sorted(f"U+{ord(char):04X}" for char in hidden))
        return f"it has invisible characters ({names})"
    if any(re.search(pattern, text) for pattern in _SECRETS):
        return "it looks like a secret; secrets belong into the settings"
    folded = unicodedata.normalize("NFKC", text)
    if any(re.search(pattern, folded, re.IGNORECASE) for pattern in _INSTRUCTIONS):
        return "it reads like instructions to an agent; write down facts and wishes only"
    return ""


def _is_hidden(char: str) -> bool:
    if char in _JOINERS:
        return False
    # The supplement of variation selectors counts as marks, yet carries any bytes unseen.
    return unicodedata.category(char) in {"Cc", "Cf", "Co", "Cs"} or 0xE0100 <= ord(char) <= 0xE01EF
