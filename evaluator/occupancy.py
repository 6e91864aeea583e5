"""How many programs fit on one SM: the arithmetic of NVIDIA's CUDA Occupancy Calculator."""

from __future__ import annotations

import math

from evaluator.hardware import Hardware
from evaluator.types import Frozen

WARP = 32
REGISTER_UNIT = 256
"""Registers are allocated per warp in units of this many (compute capability 7.0 and later)."""
SHARED_UNIT = 128
SHARED_RESERVED = 1024
"""Shared memory the driver keeps per block (compute capability 8.0 and later)."""


class Occupancy(Frozen):
    """Residency of one kernel on one SM."""

    blocks: int
    """Programs (CTAs) per SM; 0 when one does not fit."""
    warps: int
    fraction: float
    """Resident warps / the SM's maximum."""
    limiter: str
    """`warps`, `blocks`, `registers` or `shared`."""


def occupancy(hardware: Hardware, num_warps: int, registers: int, shared_bytes: int) -> Occupancy:
    """Occupancy for `registers` per thread and `shared_bytes` per program. Raises ValueError for no warps."""
    if num_warps < 1:
        raise ValueError("a program has at least one warp")
    per_warp = math.ceil(max(registers, 1) * WARP / REGISTER_UNIT) * REGISTER_UNIT
    shared = math.ceil((shared_bytes + SHARED_RESERVED) / SHARED_UNIT) * SHARED_UNIT
    fits = {
        "warps": hardware.max_warps_per_sm // num_warps,
        "blocks": hardware.max_blocks_per_sm,
        "registers": hardware.registers_per_sm // per_warp // num_warps,
        "shared": hardware.shared_bytes_per_sm // shared if shared_bytes <= hardware.shared_bytes_per_block else 0,
    }
    if registers > hardware.max_registers_per_thread:
        fits["registers"] = 0
    limiter = min(fits, key=lambda name: fits[name])
    blocks = fits[limiter]
    warps = blocks * num_warps
    return Occupancy(blocks=blocks, warps=warps, fraction=warps / hardware.max_warps_per_sm, limiter=limiter)
