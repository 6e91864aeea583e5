"""How text that others wrote is put into a prompt: as data, and never as a part of the conversation's frame."""

from __future__ import annotations

import re

LINE_CHARS = 300

# What chat templates end a message with, with a first character that a space is put behind. Servers read such words in
# a message as the real thing, so that a comment in a kernel could open a turn of its own.
_FRAME = re.compile(
    r"<(?=[|\uff5c]|/?(?:s|think|tool_call|tool_response|start_of_turn|end_of_turn|bos|eos|pad|unk)>)|\[(?=/?INST\])"
)
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f]")


def plain(text: str) -> str:
    """`text` without escape sequences, control characters, unpaired surrogates and words of chat templates."""
    encodable = text.replace("\r\n", "\n").encode("utf-8", "replace").decode()
    return _FRAME.sub(lambda found: found.group() + " ", _CONTROL.sub("", encodable))


def fenced(text: str, language: str = "") -> str:
    """`text` as a block between fences that are longer than any run of backticks in it."""
    shown = plain(text).rstrip()
    longest = max((len(run) for run in re.findall("`+", shown)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{shown}\n{fence}"


def inline(text: str) -> str:
    """`text` on one line, without backticks, for the middle of a sentence."""
    return clipped_line(" ".join(plain(text).replace("`", "'").split()))


def quoted(text: str) -> str:
    """`text` as a quotation: every line behind `> `, so that none of them opens a fence or a heading."""
    return "\n".join(f"> {inline(line)}".rstrip() for line in plain(text).strip().splitlines())


def clipped(text: str, lines: int) -> list[str]:
    """The first `lines` lines of a log and one that says how many are missing. Not for code."""
    given = plain(text).strip().splitlines()
    kept = [clipped_line(line.rstrip()) for line in given[:lines]]
    return kept + ([f"({len(given) - lines} more lines)"] if len(given) > lines else [])


def clipped_line(line: str, chars: int = LINE_CHARS) -> str:
    """A log's line, cut when it is longer than `chars` characters."""
    return line if len(line) <= chars else f"{line[: chars - 1]}…"
