"""What a GPU can do at most, measured once: copy bandwidth and dense matmul rates, kept in the user's cache.

The speed of light of a workload is max(bytes / bandwidth, flops / peak): no kernel that does the work can be faster.
Ceilings are the best of several short runs, before the GPU has grown warm: a ceiling that is too low would call an
honest kernel impossible. Datasheet peaks would do for that but no kernel reaches them, so they say little about what
is left to win.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from evaluator.cache import default_folder, replace_file
from evaluator.device import Device, l2_bytes
from evaluator.types import Frozen

logger = logging.getLogger(__name__)

COPY_BYTES = 2 << 30
MATMUL_SIZES = (4096, 8192)
REPEATS = 10
_MEMORY_SHARE = 8
# Products that keep float32's accuracy on tensor cores (`tl.dot(input_precision=…)`): three passes in TF32, six in
# bfloat16.
_FLOAT32_BY_PASSES = {"tf32": 3, "bfloat16": 6}


class GpuIdentity(Frozen):
    """What a measurement is valid for."""

    uuid: str
    name: str
    driver: str
    """Version of the driver."""
    torch: str
    """Version of torch."""


class Ceilings(Frozen):
    """Measured limits of one GPU. Rates per second, sizes in bytes."""

    gpu: GpuIdentity
    copy_bytes_per_s: float = Field(gt=0, allow_inf_nan=False)
    """Bytes read plus bytes written by a large copy within the device's memory."""
    flops: Mapping[str, Annotated[float, Field(gt=0, allow_inf_nan=False)]] = Field(min_length=1)
    """Dense matmul rate of `float16`, `bfloat16`, `tf32` (float32 operands) and `float32` (CUDA cores)."""
    l2_bytes: int = Field(gt=0)
    sms: int = Field(gt=0)

    def speed_of_light_ms(
        self, bytes_moved: int | None, flops: int | None, dtype: str, allow_tf32: bool = False
    ) -> float | None:
        """Least milliseconds for moving `bytes_moved` and computing `flops`; None when neither is known."""
        seconds = [0.0]
        if bytes_moved:
            seconds.append(bytes_moved / self.copy_bytes_per_s)
        if flops:
            seconds.append(flops / self.peak_flops(dtype, allow_tf32))
        return max(seconds) * 1e3 or None

    def floor_ms(
        self, bytes_moved: int | None, flops: int | None, dtype: str, allow_tf32: bool = False
    ) -> float | None:
        """Like `speed_of_light_ms`, but never above what an honest kernel can show.

        The last bytes that a kernel writes may still lie in L2 when it ends, so as many as fit there are left out.
        """
        beyond_l2 = max((bytes_moved or 0) - self.l2_bytes, 0)
        return self.speed_of_light_ms(beyond_l2, flops, dtype, allow_tf32)

    def peak_flops(self, dtype: str, allow_tf32: bool = False) -> float:
        """Highest rate of work in `dtype` (a torch name); the fastest known one for a dtype that was not measured.

        float32's is the better of the CUDA cores and of tensor cores in several passes.
        """
        if dtype == "float32" and allow_tf32:
            dtype = "tf32"
        rates = [self.flops[dtype]] if dtype in self.flops else list(self.flops.values())
        if dtype == "float32":
            rates += [self.flops[name] / passes for name, passes in _FLOAT32_BY_PASSES.items() if name in self.flops]
        return max(rates)


def best_rate(device: Device, amount: float, call: Callable[[], object], repeats: int = REPEATS) -> float:
    """The most of `amount` per second that any of `repeats` runs of `call` reached, after one run to warm up."""
    call()
    stamps = []
    for _ in range(repeats):
        begin = device.stamp()
        call()
        stamps.append((begin, device.stamp()))
    device.synchronize()
    return amount / (min(device.elapsed_ms(begin, end) for begin, end in stamps) / 1e3)


def ceilings_of(gpu: GpuIdentity, measure: Callable[[], Ceilings], folder: Path | None = None) -> Ceilings:
    """The ceilings of `gpu` from the cache, else measured and kept.

    The cache is a file per GPU, driver and torch version in `folder` (default: the user's cache). A file that cannot
    be read or belongs to something else is measured anew; a folder that cannot be written costs a warning.
    """
    if (kept := kept_ceilings(gpu, folder)) is not None:
        return kept
    path = _path(gpu, folder)
    found = measure()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, found.model_dump_json().encode())
    except OSError as error:
        logger.warning("ceilings are not kept: %s", error)
    return found


def kept_ceilings(gpu: GpuIdentity, folder: Path | None = None) -> Ceilings | None:
    """The ceilings of `gpu` from the cache; None when they were not measured or the file is of no use."""
    path = _path(gpu, folder)
    try:
        kept = Ceilings.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        logger.warning("not believed, since %s is unreadable: %s", path, str(error).splitlines()[0])
        return None
    return kept if kept.gpu == gpu else None


def _path(gpu: GpuIdentity, folder: Path | None) -> Path:
    digest = hashlib.sha256(gpu.model_dump_json().encode()).hexdigest()
    return (folder or default_folder() / "ceilings") / f"{digest[:32]}.json"


def measure_ceilings(device: Device, gpu: GpuIdentity) -> Ceilings:
    """Measure the current CUDA device, about 0.5 s; nothing else may use it. Needs an eighth of its free memory.

    Raises torch's errors, out of memory among them.
    """
    import torch

    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return Ceilings(
        gpu=gpu,
        copy_bytes_per_s=_copy_rate(device),
        flops=_matmul_rates(device),
        l2_bytes=l2_bytes(properties),
        sms=int(properties.multi_processor_count),
    )


def _copy_rate(device: Device) -> float:
    import torch

    free, _ = torch.cuda.mem_get_info()
    size = min(COPY_BYTES, free // _MEMORY_SHARE // 2)
    source = torch.randint(0, 256, (size,), dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return best_rate(device, 2.0 * size, lambda: target.copy_(source))


def _matmul_rates(device: Device) -> dict[str, float]:
    import torch

    kinds = {
        "float16": (torch.float16, False),
        "bfloat16": (torch.bfloat16, False),
        "tf32": (torch.float32, True),
        "float32": (torch.float32, False),
    }
    allowed = torch.backends.cuda.matmul.allow_tf32
    rates: dict[str, float] = {}
    try:
        for name, (dtype, tf32) in kinds.items():
            torch.backends.cuda.matmul.allow_tf32 = tf32
            rates[name] = max(_matmul_rate(device, dtype, size) for size in MATMUL_SIZES)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = allowed
    return rates


def _matmul_rate(device: Device, dtype: object, size: int) -> float:
    import torch

    assert isinstance(dtype, torch.dtype)
    left, right = (torch.randn(size, size, device="cuda", dtype=torch.float32).to(dtype) for _ in range(2))
    out = torch.empty_like(left)
    return best_rate(device, 2.0 * size**3, lambda: torch.mm(left, right, out=out))
