"""The trusted end of compilation: PTX text in, registers, spills and SASS out.

ptxas, cuobjdump and nvdisasm come with Triton. They are run on text that an untrusted worker wrote, so each runs in a
private folder with a time and memory limit.
"""

from __future__ import annotations

import re
import resource
import subprocess
import tempfile
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from evaluator import sass
from evaluator.compile import CompiledLaunch
from evaluator.errors import EnvironmentUnusableError, HarnessError
from evaluator.hardware import Hardware
from evaluator.types import Frozen, KernelResources

TIMEOUT_S = 60.0
MEMORY_BYTES = 8 << 30
MAX_PTX_BYTES = 16 << 20


class AssembleError(ValueError):
    """ptxas refused the code; the text is its useful lines."""


class Assembled(Frozen):
    """What ptxas and the disassembler say of one kernel."""

    registers: int
    """Per thread."""
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    static_shared_bytes: int
    sass_sha: str
    sass_mix: dict[str, int]


@lru_cache(maxsize=2048)
def assemble_ptx(ptx: str, arch: int) -> Assembled:
    """Assemble PTX for `arch` (90 for sm_90; its architecture-specific variant where PTX says so).

    Raises AssembleError with ptxas's words (out of registers, too much shared memory …), and
    EnvironmentUnusableError when the tools are missing.
    """
    if len(ptx) > MAX_PTX_BYTES:
        raise AssembleError(f"the PTX is {len(ptx) >> 20} MiB, more than {MAX_PTX_BYTES >> 20} MiB")
    programs = tools(arch)
    with tempfile.TemporaryDirectory(prefix="kernevo-ptx-") as folder:
        code, cubin = Path(folder) / "kernel.ptx", Path(folder) / "kernel.cubin"
        code.write_text(ptx)
        log = _run([programs["ptxas"], "-v", f"--gpu-name={gpu_name(ptx, arch)}", str(code), "-o", str(cubin)], folder)
        text = _run([programs["nvdisasm"], "-ndf", "-c", str(cubin)], folder)
    return Assembled(**_resources(log), sass_sha=sass.sass_sha(text), sass_mix=sass.mix(text))


def gpu_name(ptx: str, arch: int) -> str:
    """The target the PTX itself names (`sm_90a`), which must be of the asked generation."""
    named = re.search(r"^\s*\.target\s+(sm_(\d+)[a-z]?)", ptx, re.MULTILINE)
    if named is None or int(named.group(2)) != arch:
        raise AssembleError(f"the PTX is not for sm_{arch}")
    return named.group(1)


def _resources(log: str) -> dict[str, int]:
    def number(pattern: str) -> int:
        found = re.findall(pattern, log)
        return max((int(value) for value in found), default=0)

    return {
        "registers": number(r"Used (\d+) registers"),
        "stack_bytes": number(r"(\d+) bytes stack frame"),
        "spill_store_bytes": number(r"(\d+) bytes spill stores"),
        "spill_load_bytes": number(r"(\d+) bytes spill loads"),
        "static_shared_bytes": number(r"(\d+) bytes smem"),
    }


@lru_cache(maxsize=8)
def tools(arch: int) -> dict[str, str]:
    """Paths of the ptxas that Triton uses for `arch`, and of nvdisasm. Raises EnvironmentUnusableError."""
    from triton.backends.nvidia import compiler

    found = {
        "ptxas": Path(compiler.get_ptxas(arch).path),
        "nvdisasm": Path(compiler.__file__).parent / "bin" / "nvdisasm",
    }
    missing = [str(path) for path in found.values() if not path.is_file()]
    if missing:
        raise EnvironmentUnusableError(
            f"{', '.join(missing)}: missing from Triton", "reinstall it: pip install --force-reinstall triton"
        )
    return {name: str(path) for name, path in found.items()}


def _run(command: list[str], folder: str) -> str:
    name = Path(command[0]).name
    # A session of its own: Ctrl-C in the terminal must not kill it and blame the kernel.
    process = subprocess.Popen(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={"PATH": ""},
        start_new_session=True,
    )
    with suppress(ProcessLookupError):  # it may be done already
        resource.prlimit(process.pid, resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    try:
        raw, _ = process.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise AssembleError(f"{name} took longer than {TIMEOUT_S:.0f} s") from None
    output = raw.decode(errors="replace")
    if process.returncode < 0:
        raise HarnessError(f"{name} was killed by signal {-process.returncode}")
    if process.returncode != 0:
        raise AssembleError(_useful(output, folder) or f"{name} ended with {process.returncode}")
    return output


def _useful(output: str, folder: str) -> str:
    lines = [line.replace(folder + "/", "") for line in output.splitlines() if "error" in line or "fatal" in line]
    return "\n".join(lines[:5])


def assemble(launch: CompiledLaunch, hardware: Hardware) -> KernelResources:
    """What one compiled launch needs of the target. Raises like `assemble_ptx`."""
    found = assemble_ptx(launch.ptx, hardware.arch)
    return KernelResources(
        name=launch.kernel,
        num_warps=launch.num_warps,
        num_stages=launch.num_stages,
        num_ctas=launch.num_ctas,
        registers=found.registers,
        stack_bytes=found.stack_bytes,
        spill_store_bytes=found.spill_store_bytes,
        spill_load_bytes=found.spill_load_bytes,
        # Triton allocates shared memory dynamically; ptxas sees only what is static.
        shared_bytes=max(launch.shared_bytes, found.static_shared_bytes),
        ptx_sha=launch.ptx_sha,
        sass_sha=found.sass_sha,
        sass_mix=found.sass_mix,
    )
