"""What a candidate keeps in memory from one call to the next; inside the untrusted worker only.

A workspace that is written anew at every call, or a table that never changes, is nobody's business. Memory whose
contents follow the inputs may hold answers: the judge has it overwritten and looks whether outputs suffer.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Collection

import torch

Blocks = dict[int, int]
"""Address -> bytes."""
_PIECE = 1 << 22
"""Words looked at at once: the candidate's memory is limited, and these come out of it."""
Sums = dict[int, tuple[int, int]]
"""Address -> two checksums."""


def allocations(device: str) -> Blocks:
    """Live allocations of this process's tensors on `device` ("cuda" or "cpu")."""
    if device == "cuda":
        return {
            int(block["address"]): int(block["size"])
            for segment in torch.cuda.memory_snapshot()  # type: ignore[no-untyped-call]
            for block in segment["blocks"]
            if block["state"] == "active_allocated"
        }
    found = (thing for thing in gc.get_objects() if type(thing) in (torch.Tensor, torch.nn.Parameter))
    storages = [tensor.untyped_storage() for tensor in found if tensor.device.type == "cpu"]
    return {storage.data_ptr(): storage.nbytes() for storage in storages if storage.nbytes()}


def contents(blocks: Blocks, device: str) -> Sums:
    """Checksums of blocks; one of them depends on the order of what lies there."""
    found: Sums = {}
    for address, size in blocks.items():
        plain, ordered = 0, 0
        for words in torch.split(_bytes_at(address, size // 4 * 4, device).view(torch.int32), _PIECE):
            places = torch.arange(words.numel(), dtype=torch.int32, device=words.device)
            plain += int(words.sum(dtype=torch.int64))
            ordered = 31 * ordered + int((words * places).sum(dtype=torch.int64))
        found[address] = plain, ordered
    return found


def overwrite(addresses: Collection[int], blocks: Blocks, device: str) -> None:
    """Fill blocks with bytes that are NaN in every float format."""
    for address in addresses:
        _bytes_at(address, blocks[address], device).fill_(0xFF)


class _Raw:
    """Memory of the device that somebody else owns."""

    def __init__(self, address: int, size: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }


def _bytes_at(address: int, size: int, device: str) -> torch.Tensor:
    if device == "cuda":
        return torch.as_tensor(_Raw(address, size), device="cuda")
    return torch.frombuffer((ctypes.c_uint8 * size).from_address(address), dtype=torch.uint8)
