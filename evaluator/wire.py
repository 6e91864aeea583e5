"""Frames between the judge and an untrusted worker: a JSON header and raw tensor bytes, never a pickle.

A frame is `MAGIC`, the header's length (uint32), the body's length (uint64), the header (UTF-8 JSON) and the
body (the tensors' bytes, one after the other). Tensors inside the value become `{"$tensor": i}` and tuples
`{"$tuple": [...]}`; what cannot be said in JSON is a `WireError`, never an object of the sender's choosing.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

MAGIC = b"KEV1"
PREFIX = struct.Struct("<4sIQ")
MAX_HEADER_BYTES = 64 << 20
_DTYPES = (
    "float64",
    "float32",
    "float16",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "bool",
    "complex64",
    "complex128",
)
_MAX_DIMS = 32
_MAX_DEPTH = 64


class WireError(ValueError):
    """The bytes are not a frame, or the value cannot travel in one."""


def dump(value: Any) -> bytes:
    """The frame for `value`: JSON scalars, lists, tuples, dicts with string keys, and dense tensors
    (those on the meta device travel without contents).

    Raises `WireError` for anything else (subclasses of `torch.Tensor` included).
    """
    blobs: list[bytes] = []
    tensors: list[dict[str, Any]] = []
    tree = _lower(value, tensors, blobs, 0)
    header = json.dumps({"value": tree, "tensors": tensors}, separators=(",", ":")).encode()
    if len(header) > MAX_HEADER_BYTES:
        raise WireError(f"header of {len(header)} bytes is over the limit of {MAX_HEADER_BYTES}")
    return b"".join([PREFIX.pack(MAGIC, len(header), sum(map(len, blobs))), header, *blobs])


def frame_size(prefix: bytes, max_bytes: int) -> int:
    """Bytes that follow `prefix` in this frame; `WireError` when it is no prefix or promises too much."""
    magic, header_bytes, body_bytes = PREFIX.unpack(prefix)
    if magic != MAGIC:
        raise WireError("not a frame: wrong first bytes")
    if header_bytes > MAX_HEADER_BYTES or header_bytes + body_bytes > max_bytes:
        raise WireError(f"frame of {header_bytes + body_bytes} bytes is over the limit of {max_bytes}")
    return int(header_bytes + body_bytes)


def load(frame: bytes | bytearray | memoryview, max_bytes: int = 1 << 40, allow_meta: bool = True) -> Any:
    """The value of one whole frame. Anything malformed is a `WireError`, whatever the sender wrote.

    `allow_meta=False` also refuses tensors without contents.
    """
    view = memoryview(frame)
    if len(view) < PREFIX.size:
        raise WireError("not a frame: too short")
    if len(view) != PREFIX.size + frame_size(bytes(view[: PREFIX.size]), max_bytes):
        raise WireError("not a frame: its length disagrees with its prefix")
    header_bytes = PREFIX.unpack(bytes(view[: PREFIX.size]))[1]
    body = view[PREFIX.size + header_bytes :]
    try:
        document = json.loads(bytes(view[PREFIX.size : PREFIX.size + header_bytes]))
        tensors = _read_tensors(document["tensors"], body)
        if not allow_meta and any(tensor.is_meta for tensor in tensors):
            raise WireError("malformed frame: a tensor without contents")
        return _raise(document["value"], tensors, 0)
    except WireError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError, RuntimeError) as error:
        raise WireError(f"malformed frame: {type(error).__name__}: {error}") from error


def digest(tensor: torch.Tensor) -> str:
    """SHA-256 of a tensor's dtype, shape and elements (not of its strides), as 64 hex digits."""
    head = f"{tensor.dtype}{tuple(tensor.shape)}".encode()
    return hashlib.sha256(head + _content(tensor)).hexdigest()


def _content(tensor: torch.Tensor) -> bytes:
    import torch

    dense = tensor.detach().cpu().contiguous().reshape(-1)
    return dense.view(torch.uint8).numpy().tobytes() if dense.numel() else b""


def _lower(value: Any, tensors: list[dict[str, Any]], blobs: list[bytes], depth: int) -> Any:
    import torch

    if depth > _MAX_DEPTH:
        raise WireError("value is nested too deeply to send")
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$float": repr(value)}
    if type(value) in (torch.Tensor, torch.nn.Parameter):
        return {"$tensor": _lower_tensor(value.detach(), tensors, blobs)}
    if isinstance(value, torch.dtype):
        return {"$dtype": str(value).removeprefix("torch.")}
    if isinstance(value, list):
        return [_lower(item, tensors, blobs, depth + 1) for item in value]
    if isinstance(value, tuple):
        return {"$tuple": [_lower(item, tensors, blobs, depth + 1) for item in value]}
    if isinstance(value, dict) and all(isinstance(key, str) and not key.startswith("$") for key in value):
        return {key: _lower(item, tensors, blobs, depth + 1) for key, item in value.items()}
    raise WireError(f"a {type(value).__module__}.{type(value).__qualname__} cannot be sent to a worker")


def _lower_tensor(tensor: torch.Tensor, tensors: list[dict[str, Any]], blobs: list[bytes]) -> int:
    import torch

    name = str(tensor.dtype).removeprefix("torch.")
    if name not in _DTYPES or tensor.layout != torch.strided:
        raise WireError(f"a tensor of {tensor.dtype}, {tensor.layout} on {tensor.device} cannot be sent")
    blob = b"" if tensor.is_meta else _content(tensor)
    entry = {"dtype": name, "shape": list(tensor.shape), "stride": list(tensor.stride()), "bytes": len(blob)}
    tensors.append({**entry, "meta": True} if tensor.is_meta else entry)
    blobs.append(blob)
    return len(tensors) - 1


def _read_tensors(entries: Any, body: memoryview) -> list[torch.Tensor]:
    if not isinstance(entries, list):
        raise WireError("malformed frame: no tensor table")
    tensors, offset = [], 0
    for entry in entries:
        size = _natural(entry["bytes"])
        tensors.append(_read_tensor(entry, body[offset : offset + size]))
        offset += size
    if offset != len(body):
        raise WireError("malformed frame: tensor bytes disagree with the table")
    return tensors


def _read_tensor(entry: dict[str, Any], blob: memoryview) -> torch.Tensor:
    import torch

    if entry["dtype"] not in _DTYPES:
        raise WireError("malformed frame: unknown dtype")
    dtype = getattr(torch, entry["dtype"])
    shape = [_natural(size) for size in entry["shape"]]
    stride = [_natural(step) for step in entry["stride"]]
    if len(shape) > _MAX_DIMS or len(shape) != len(stride):
        raise WireError("malformed frame: bad shape")
    if entry.get("meta") is True:
        return torch.empty_strided(shape, stride, dtype=dtype, device="meta")
    if len(blob) != math.prod(shape) * dtype.itemsize:
        raise WireError("malformed frame: tensor bytes disagree with its shape")
    if not len(blob):
        return torch.empty(shape, dtype=dtype)
    dense = torch.frombuffer(bytearray(blob), dtype=torch.uint8).view(dtype).reshape(shape)
    return dense if list(dense.stride()) == stride else _restride(dense, shape, stride)


def _restride(dense: torch.Tensor, shape: list[int], stride: list[int]) -> torch.Tensor:
    import torch

    extent = 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
    # Overlapping (expanded) layouts arrive dense, and gaps may not be used to ask for memory.
    if not dense.numel() <= extent <= 4 * dense.numel() + 4096:
        return dense
    return torch.empty(extent, dtype=dense.dtype).as_strided(shape, stride).copy_(dense)


def _natural(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 48:
        raise WireError("malformed frame: expected a size")
    return value


def _raise(value: Any, tensors: list[torch.Tensor], depth: int) -> Any:
    if depth > 2 * _MAX_DEPTH:
        raise WireError("malformed frame: nested too deeply")
    if isinstance(value, list):
        return [_raise(item, tensors, depth + 1) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((key, inner),) = value.items()
        if key == "$tensor":
            return tensors[_natural(inner)]
        if key == "$tuple":
            return tuple(_raise(item, tensors, depth + 1) for item in inner)
        if key == "$float":
            return float(inner)
        if key == "$dtype":
            return _dtype(inner)
    return {key: _raise(item, tensors, depth + 1) for key, item in value.items()}


def _dtype(name: Any) -> torch.dtype:
    import torch

    if name not in _DTYPES:
        raise WireError("malformed frame: unknown dtype")
    dtype = getattr(torch, name)
    assert isinstance(dtype, torch.dtype)
    return dtype
