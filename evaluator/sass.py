"""Reads disassembled GPU code: counts instructions by what they keep busy, and hashes what a kernel does.

Classes (the names are keys of `KernelResources.sass_mix`):
  ldg32 ldg64 ldg128 stg32 stg64 stg128   global loads and stores by bits per thread (narrower ones count as 32)
  ldgsts tma                              asynchronous copies into shared memory (cp.async, bulk tensor copies)
  lds sts                                 shared memory
  ldl stl                                 local memory: spills and dynamically indexed arrays
  atom                                    atomics and reductions in memory
  mma wgmma                               tensor cores, by one warp (HMMA …) or by a warp group and more (HGMMA …)
  fp32 fp64 half int mufu convert         arithmetic pipes
  control barrier other                   branches, waits, moves and the rest
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter

_INSTRUCTION = re.compile(
    r"^\s*/\*[0-9a-f]{4,}\*/\s+(@!?U?P[T0-9]+\s+)?([A-Z][A-Z0-9_]*)((?:\.[A-Za-z0-9_]+)*)([^;]*);"
)
_LABEL = re.compile(r"\.L[A-Za-z_]*[0-9]+")

_CLASSES: dict[str, str] = {
    **dict.fromkeys(("FADD", "FMUL", "FFMA", "FMNMX", "FSETP", "FSEL", "FSET", "FCHK", "FSWZADD"), "fp32"),
    **dict.fromkeys(("DADD", "DMUL", "DFMA", "DSETP", "DMNMX"), "fp64"),
    **dict.fromkeys(("HADD2", "HMUL2", "HFMA2", "HSETP2", "HMNMX2", "HSET2"), "half"),
    "MUFU": "mufu",
    **dict.fromkeys(("F2F", "F2FP", "F2I", "I2F", "I2FP", "F2IP", "FRND", "I2I"), "convert"),
    **dict.fromkeys(
        ("IADD3", "IMAD", "LOP3", "SHF", "ISETP", "LEA", "IMNMX", "VIMNMX", "PRMT", "SEL", "IABS", "POPC"), "int"
    ),
    **dict.fromkeys(("LDS", "LDSM"), "lds"),
    **dict.fromkeys(("STS", "STSM"), "sts"),
    "LDL": "ldl",
    "STL": "stl",
    "LDGSTS": "ldgsts",
    **dict.fromkeys(("UTMALDG", "UTMASTG", "UBLKCP", "UTMAPF"), "tma"),
    **dict.fromkeys(("ATOM", "ATOMG", "ATOMS", "RED", "REDG"), "atom"),
    **dict.fromkeys(("HMMA", "IMMA", "DMMA", "BMMA", "QMMA"), "mma"),
    **dict.fromkeys(("HGMMA", "IGMMA", "QGMMA", "BGMMA", "UTCHMMA", "UTCQMMA"), "wgmma"),
    **dict.fromkeys(
        ("BRA", "EXIT", "RET", "CALL", "BSSY", "BSYNC", "BREAK", "WARPSYNC", "NANOSLEEP", "YIELD"), "control"
    ),
    **dict.fromkeys(("BAR", "DEPBAR", "LDGDEPBAR", "SYNCS", "MEMBAR", "WARPGROUP", "FENCE", "ARRIVES"), "barrier"),
}

CLASSES: tuple[str, ...] = (
    *("ldg32", "ldg64", "ldg128", "stg32", "stg64", "stg128"),
    *sorted(set(_CLASSES.values())),
    "other",
)


def instructions(sass: str) -> list[tuple[str, str, str]]:
    """(opcode, modifiers, operands) of every instruction of nvdisasm or cuobjdump text, padding NOPs left out."""
    return [(name, kind, operands) for _, name, kind, operands in _guarded(sass)]


def _guarded(sass: str, labels: bool = False) -> list[tuple[str, str, str, str]]:
    """(predicate or "", opcode, modifiers, operands) of every instruction; a label's line as ("label:", "", "", "")."""
    found: list[tuple[str, str, str, str]] = []
    for line in sass.splitlines():
        match = _INSTRUCTION.match(line)
        if match and match[2] != "NOP":
            found.append(((match[1] or "").strip(), match[2], match[3], match[4].strip()))
        elif labels and _LABEL.fullmatch(line.strip().removesuffix(":")):
            found.append((line.strip(), "", "", ""))
    return found


def classify(opcode: str, modifiers: str) -> str:
    """The class of one instruction."""
    if opcode in ("LDG", "LD", "STG", "ST"):
        width = 128 if ".128" in modifiers else 64 if ".64" in modifiers else 32
        return f"{'ldg' if opcode.startswith('LD') else 'stg'}{width}"
    return _CLASSES.get(opcode, "other")


def mix(sass: str) -> dict[str, int]:
    """Static instruction counts by class; classes that do not occur are left out."""
    counts = Counter(classify(opcode, modifiers) for opcode, modifiers, _ in instructions(sass))
    return {name: counts[name] for name in CLASSES if counts[name]}


def sass_sha(sass: str) -> str:
    """SHA-256 of the code alone: addresses, encodings, names of labels and of constant banks do not count.

    Predicates, numbers among the operands and where labels lie do: they tell a mask from its opposite, a step from
    another and a loop from another.
    """
    numbers: dict[str, str] = {}
    named = _LABEL.sub(lambda label: numbers.setdefault(label[0], f".L{len(numbers)}"), sass)
    lines = [
        f"{guard} {opcode}{modifiers} {_without_addresses(opcode, operands)}" if opcode else guard
        for guard, opcode, modifiers, operands in _guarded(named, labels=True)
    ]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _without_addresses(opcode: str, operands: str) -> str:
    """Only a branch holds addresses; anywhere else a number is a number."""
    return re.sub(r"0x[0-9a-f]+", "@", operands) if _CLASSES.get(opcode) == "control" else operands
