"""Untrusted text made fit for people's eyes. Escaping for HTML is the template engine's work, not this module's."""

from __future__ import annotations

import math
import re

LINE_LIMIT = 400
DASH = "\u2013"
# Control characters but tab and newline, bidirectional overrides (they can make code read as what it is not),
# unpaired surrogates (UTF-8 cannot hold them), and the separators that some viewers take for line breaks.
_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")


def visible(text: str) -> str:
    """The text with every character that would act instead of show replaced by a picture or by its code point."""
    return _HIDDEN.sub(_picture, text.replace("\r\n", "\n"))


def _picture(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else f"\u27e8U+{code:04X}\u27e9"


def clip_line(line: str, limit: int = LINE_LIMIT) -> str:
    """A line of at most `limit` characters and a note of how many were left out."""
    return line if len(line) <= limit else f"{line[:limit]} … (+{len(line) - limit:,} characters)"


def clip(text: str, limit: int = 20_000) -> str:
    """At most about `limit` characters of text, long lines clipped, with notes of what was left out."""
    shown: list[str] = []
    size = 0
    lines = text.split("\n")
    for line in lines:
        clipped = clip_line(line)
        size += len(clipped) + 1
        if size > limit:
            shown.append(f"… (+{len(lines) - len(shown):,} lines)")
            break
        shown.append(clipped)
    return "\n".join(shown)


def number(value: float | None, spec: str = ".4g") -> str:
    """A number for people; a dash for None, NaN and infinities."""
    return DASH if value is None or not math.isfinite(value) else format(value, spec)


def finite(value: float | None) -> float | None:
    """The number, or None where there is none to draw."""
    return value if value is not None and math.isfinite(value) else None
