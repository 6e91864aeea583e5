"""Memory that judge and worker both see: inputs go one way in it, raw outputs the other.

An arena is one allocation of the judge's, which the worker maps through a token that is plain data. On CUDA it comes
straight from the driver (cuMemAlloc, cuIpcGetMemHandle): an IPC handle opens a whole allocation, so nothing else of
the judge's, expected outputs least of all, may ever share one with it. On the host it is a file that both map.

Layout: every tensor of an arena begins on `ALIGNMENT` bytes and lies between red zones; `Layout` hands out the
places, `Arena.view` makes tensors of them.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from evaluator.errors import EnvironmentUnusableError, HarnessError
from evaluator.types import Frozen

if TYPE_CHECKING:
    import torch

ALIGNMENT = 512
"""CUDA's allocator aligns so."""
REDZONE = 64 << 10
"""Bytes on both sides of every tensor: more than a tile of 16-bit values that is 128 wide and 256 high."""


class Place(Frozen):
    """Where a tensor lies in an arena. Sizes and strides in elements, the offset in bytes."""

    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str

    @property
    def nbytes(self) -> int:
        """From the first to behind the last element."""
        if 0 in self.shape:
            return 0
        last = sum((size - 1) * step for size, step in zip(self.shape, self.stride, strict=True))
        return (last + 1) * itemsize(self.dtype)

    def moved(self, offset: int) -> Place:
        """The same, `offset` bytes further on."""
        return self.model_copy(update={"offset": self.offset + offset})


def itemsize(dtype: str) -> int:
    """Bytes of one element of a torch dtype, by name."""
    import torch

    found = getattr(torch, dtype)
    assert isinstance(found, torch.dtype)
    return found.itemsize


def is_tensor(value: Any) -> bool:
    """Whether it is a torch tensor."""
    import torch

    return isinstance(value, torch.Tensor)


class Layout:
    """Hands out places in an arena, one after the other."""

    def __init__(self) -> None:
        self.begin = 0
        self.nbytes = REDZONE
        self.places: list[Place] = []

    def add(self, shape: Sequence[int], stride: Sequence[int], dtype: str) -> Place:
        """The next place, behind a red zone."""
        place = Place(offset=self.nbytes, shape=tuple(shape), stride=tuple(stride), dtype=dtype)
        self.nbytes = _up(place.offset + place.nbytes, ALIGNMENT) + REDZONE
        self.places.append(place)
        return place

    def add_like(self, tensor: torch.Tensor) -> Place:
        """The next place, for a tensor of this shape, stride and dtype."""
        return self.add(tensor.shape, tensor.stride(), str(tensor.dtype).removeprefix("torch."))

    def moved(self, offset: int) -> Layout:
        """The same, `offset` bytes further on."""
        moved = Layout()
        moved.begin, moved.nbytes = self.begin + offset, self.nbytes + offset
        moved.places = [place.moved(offset) for place in self.places]
        return moved

    def zones(self) -> list[tuple[int, int]]:
        """[begin, end) byte ranges that belong to no tensor."""
        edges = [
            self.begin,
            *(edge for place in self.places for edge in (place.offset, place.offset + place.nbytes)),
            self.nbytes,
        ]
        return [(begin, end) for begin, end in zip(edges[::2], edges[1::2], strict=True) if end > begin]


class Arena(Protocol):
    """One shared allocation."""

    bytes: torch.Tensor
    """All of it, uint8."""

    def token(self) -> dict[str, Any]:
        """Plain data with which another process maps it."""
        ...

    def close(self) -> None:
        """Unmap or free it. Tensors made from it must not be used afterwards."""
        ...


def view(arena: Arena, place: Place) -> torch.Tensor:
    """The tensor at a place, without copying. Raises `HarnessError` when it does not lie inside."""
    import torch

    if place.offset < 0 or place.offset + place.nbytes > arena.bytes.numel():
        raise HarnessError(f"a tensor of {place.nbytes} bytes at {place.offset} lies outside of the arena")
    dtype = getattr(torch, place.dtype)
    flat = arena.bytes[place.offset : place.offset + place.nbytes].view(dtype)
    return flat.as_strided(place.shape, place.stride)


class HostArena:
    """A file that both sides map."""

    def __init__(self, path: Path, nbytes: int, create: bool) -> None:
        import torch

        self._path, self._nbytes = path, nbytes
        flags = os.O_RDWR | (os.O_CREAT | os.O_EXCL if create else 0)
        descriptor = os.open(path, flags, 0o666)
        try:
            if create:
                os.fchmod(descriptor, 0o666)  # a worker of another user writes outputs into it
                os.ftruncate(descriptor, nbytes)
            self._map = mmap.mmap(descriptor, nbytes)
        finally:
            os.close(descriptor)
        self.bytes = torch.frombuffer(self._map, dtype=torch.uint8)

    @classmethod
    def create(cls, folder: Path, nbytes: int) -> HostArena:
        """A new arena in `folder`, zeroed."""
        return cls(folder / f"arena-{os.urandom(8).hex()}", nbytes, create=True)

    def token(self) -> dict[str, Any]:
        """The file's path and size."""
        return {"path": str(self._path), "nbytes": self._nbytes}

    def close(self) -> None:
        """Forget the file; the mapping goes with its last tensor."""
        self._path.unlink(missing_ok=True)


class CudaArena:
    """Device memory from the driver, alone in its allocation."""

    def __init__(self, pointer: int, nbytes: int, owned: bool) -> None:
        import torch

        self._pointer, self._nbytes, self._owned = pointer, nbytes, owned
        self.bytes = torch.as_tensor(_Interface(pointer, nbytes), device="cuda")

    @classmethod
    def create(cls, nbytes: int) -> CudaArena:
        """A new arena on the current device. Raises `HarnessError` when there is no room."""
        pointer = ctypes.c_uint64()
        _check(_driver().cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(nbytes)), f"cuMemAlloc of {nbytes} bytes")
        return cls(pointer.value, nbytes, owned=True)

    @classmethod
    def open(cls, token: Mapping[str, Any]) -> CudaArena:
        """Map another process's arena on the current device."""
        pointer = ctypes.c_uint64()
        handle = (ctypes.c_char * 64).from_buffer_copy(bytes.fromhex(token["handle"]))
        # The 64 bytes are passed by value; flag 1 lets peers on other devices map lazily.
        opened = _driver().cuIpcOpenMemHandle_v2(ctypes.byref(pointer), _Handle(handle), ctypes.c_uint(1))
        _check(opened, "cuIpcOpenMemHandle")
        return cls(pointer.value, int(token["nbytes"]), owned=False)

    def token(self) -> dict[str, Any]:
        """The IPC handle and the size."""
        handle = _Handle()
        _check(_driver().cuIpcGetMemHandle(ctypes.byref(handle), ctypes.c_uint64(self._pointer)), "cuIpcGetMemHandle")
        return {"handle": bytes(handle.reserved).hex(), "nbytes": self._nbytes}

    def close(self) -> None:
        """Free or unmap it; errors are ignored, since a lost context has nothing left to free."""
        if self._pointer:
            free = _driver().cuMemFree_v2 if self._owned else _driver().cuIpcCloseMemHandle
            free(ctypes.c_uint64(self._pointer))
            self._pointer = 0


class _Handle(ctypes.Structure):
    """CUipcMemHandle."""

    _fields_ = (("reserved", ctypes.c_ubyte * 64),)

    def __init__(self, raw: Any = None) -> None:
        super().__init__()
        if raw is not None:
            ctypes.memmove(ctypes.byref(self), raw, 64)


class _Interface:
    """What `torch.as_tensor` needs to see memory it did not allocate."""

    def __init__(self, pointer: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (pointer, False),
            "version": 2,
        }


def _driver() -> ctypes.CDLL:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise EnvironmentUnusableError(f"no CUDA driver: {error}", "set evaluator.type to cpu") from None


def _check(code: int, what: str) -> None:
    if code != 0:
        name = ctypes.c_char_p()
        _driver().cuGetErrorName(code, ctypes.byref(name))
        raise HarnessError(f"{what} failed: {(name.value or b'unknown').decode()} ({code})")


def _up(value: int, step: int) -> int:
    return math.ceil(value / step) * step


def settle(arena: Arena) -> None:
    """The judge's writes are visible to other processes from here on."""
    if arena.bytes.is_cuda:
        import torch

        torch.cuda.synchronize()
