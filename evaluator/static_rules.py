"""The tables of the static stage: what a candidate may name and call; `static_members` has what it may import."""

from __future__ import annotations

from evaluator.static_members import ONLY_METHODS, TENSOR_FUNCTIONS

HOST_MODULES = frozenset(
    {
        *("os", "sys", "inspect", "ctypes", "importlib", "builtins", "gc", "threading", "subprocess", "socket"),
        *("pickle", "shutil", "pathlib", "tempfile", "weakref", "atexit", "signal", "io", "time", "platform", "glob"),
        *("multiprocessing", "traceback", "linecache", "warnings", "contextlib", "logging", "numpy", "np", "codecs"),
    }
)
"""Modules that libraries hold as attributes (`dataclasses.sys`), which an import of theirs would hand over."""

FORBIDDEN_NAMES = {
    **dict.fromkeys(("exec", "eval", "compile", "__import__", "breakpoint"), "runs code the judge cannot read"),
    **dict.fromkeys(("open", "input"), "reaches outside of the kernel"),
    **dict.fromkeys(
        ("globals", "locals", "vars", "__builtins__", "__loader__", "__spec__"), "reaches into the interpreter"
    ),
    **dict.fromkeys(("setattr", "delattr"), "may patch what the judge relies on"),
    **dict.fromkeys(("id", "hash"), "identifies tensors across calls, as a cache would"),
    "getattr": "reaches attributes that cannot be read here",
    "dir": "reaches attributes that cannot be read here",
}

FORBIDDEN_ATTRIBUTES = {
    **dict.fromkeys(("data_ptr", "untyped_storage", "storage", "_cdata"), "identifies or reaches a tensor's memory"),
    **dict.fromkeys(
        ("f_back", "f_globals", "f_locals", "f_builtins", "f_code", "gi_frame", "tb_frame", "tb_next", "cr_frame"),
        "walks the caller's frames",
    ),
    **dict.fromkeys(
        ("training", "requires_grad", "is_grad_enabled", "is_inference_mode_enabled", "is_inference"),
        "lets the kernel behave differently when it is judged",
    ),
    **dict.fromkeys(("add_pre_run_hook", "pre_run_hooks"), "runs code outside of the forward"),
    **dict.fromkeys(("as_subclass", "_make_subclass", "_make_wrapper_subclass"), "makes a tensor that is not exact"),
    **dict.fromkeys(("set_", "share_memory_", "resize_"), "changes what memory a tensor stands for"),
    **dict.fromkeys(
        ("get_capture_scope", "used_global_vals", "hash_cache", "device_caches"), "reaches into the launcher"
    ),
    **dict.fromkeys(
        ("torch", "triton", "sys", "builtins", "importlib", "ctypes"), "is a module that another one holds"
    ),
    "compile": "lets Inductor write the kernel",
    **dict.fromkeys(("format_map", "set_submodule"), "reaches attributes that cannot be read here"),
    "mro": "reaches into the interpreter",
    **dict.fromkeys(("is_meta", "_version"), "tells a judged call from a timed one"),
}

ALLOWED_DUNDERS = frozenset({"__init__", "__name__", "__version__", "__post_init__"})
"""Double-underscore attributes that may be named."""

ALLOWED_NAMES = frozenset({"__name__", "__doc__", "__debug__", "__file__"})
"""Double-underscore names that may be read."""

ALLOWED_PRIVATE = frozenset({"_replace", "_asdict", "_fields", "_make"})
"""Private attributes that are public ones of a named tuple."""

DEFINABLE_DUNDERS = ALLOWED_DUNDERS | {
    *("__repr__", "__str__", "__len__", "__iter__", "__eq__", "__lt__", "__hash__", "__call__", "__contains__"),
    *("__bool__", "__int__", "__index__"),
}
"""Double-underscore methods that a candidate's classes may define; the entry class may not define `__call__`."""

FORBIDDEN_PATHS = {
    "torch.ops": "calls compiled operators by name",
    "torch.compile": "lets Inductor write the kernel",
    "torch.jit": "compiles host code",
    "torch.utils": "loads or compiles other code",
    "torch.hub": "downloads code",
    "torch.library": "registers operators",
    "torch.distributed": "talks to other processes",
    "torch.multiprocessing": "starts processes",
    "torch._C": "reaches into the runtime",
    "torch.load": "reads files",
    "torch.save": "writes files",
    "torch.from_file": "reads files",
    "torch.backends": "changes global settings",
    "torch.autograd.graph": "defers work",
    "torch.fx": "rewrites host code",
    "torch.export": "rewrites host code",
    "torch.overrides": "intercepts torch",
    "torch.package": "loads other code",
    "torch.serialization": "reads files",
    "torch.classes": "calls compiled code by name",
    "torch.profiler": "is the judge's",
    "torch.testing": "is the judge's",
    "torch.use_deterministic_algorithms": "changes global settings",
    **dict.fromkeys(
        ("torch.random", "torch.manual_seed", "torch.seed", "torch.initial_seed", "torch.default_generator"),
        "touches the judge's random numbers",
    ),
    **dict.fromkeys(("torch.get_rng_state", "torch.set_rng_state"), "touches the judge's random numbers"),
    **dict.fromkeys(("operator.attrgetter", "operator.methodcaller"), "reaches attributes that cannot be read here"),
    **dict.fromkeys(("triton.JITFunction", "triton.KernelInterface"), "tells a judged call from a timed one"),
    "triton.testing": "has no place in a kernel file",
    "triton.runtime": "reaches into the launcher",
    "triton.compiler": "reaches into the compiler",
    "triton.knobs": "changes global settings",
    "triton.backends": "reaches into the compiler",
}
"""Dotted prefixes under the imported roots."""

TORCH_ALLOCATION = frozenset(
    {
        *("empty", "empty_like", "empty_strided", "zeros", "zeros_like", "ones", "full", "full_like", "tensor"),
        *("arange", "as_strided", "broadcast_shapes", "result_type", "promote_types", "is_tensor", "numel"),
        *("Tensor", "Size", "device", "dtype", "no_grad", "inference_mode", "finfo", "iinfo", "memory_format"),
        *("float16", "bfloat16", "float32", "float64", "half", "float", "double", "int8", "int16", "int32", "int64"),
        *("uint8", "long", "int", "bool", "float8_e4m3fn", "float8_e5m2", "contiguous_format", "channels_last"),
        *(
            "nn",
            "cuda",
            "autograd",
            "amp",
            "strided",
            "flatten",
            "reshape",
            "transpose",
            "permute",
            "squeeze",
            "unsqueeze",
        ),
        "preserve_format",
    }
)
"""Members of `torch` that only allocate, describe or view: all that a strict task allows outside of kernels."""

IN_TRITON = "this task wants all computation in Triton"

HOLDERS = frozenset({"Module", "Parameter", "ParameterList", "ParameterDict", "Buffer", "UninitializedParameter"})
"""Classes of `torch.nn` that compute nothing."""

TENSOR_EVIDENCE = frozenset(
    {"shape", "stride", "numel", "contiguous", "is_contiguous", "view", "reshape", "new_empty", "element_size"}
)
"""Attributes that only a tensor has: a parameter of which one is used is taken for a tensor."""

TENSOR_MAKERS = frozenset(
    {
        *("empty", "empty_like", "empty_strided", "zeros", "zeros_like", "ones", "full", "full_like", "tensor"),
        *("arange", "as_strided", "flatten", "reshape", "transpose", "permute", "squeeze", "unsqueeze"),
    }
)
"""Members of `torch` that return a tensor and that a strict task allows."""

VIEWS = frozenset(
    {
        *("contiguous", "view", "view_as", "reshape", "reshape_as", "flatten", "unflatten", "squeeze", "unsqueeze"),
        *("transpose", "permute", "t", "expand", "expand_as", "narrow", "select", "movedim", "swapaxes", "as_strided"),
        *("detach", "clone", "to", "type", "type_as", "float", "half", "bfloat16", "double", "int", "long", "bool"),
        *("new_empty", "new_zeros", "new_ones", "new_full", "new_tensor", "copy_", "zero_", "fill_", "cuda"),
        *("requires_grad_", "broadcast_to", "diagonal", "unfold", "squeeze_", "unsqueeze_", "t_", "transpose_"),
        "new_empty_strided",
    }
)
"""Tensor methods that return a tensor without arithmetic."""

DESCRIPTIONS = frozenset(
    {
        *("size", "stride", "dim", "ndimension", "numel", "nelement", "element_size", "is_contiguous", "item"),
        *(
            "is_floating_point",
            "is_complex",
            "get_device",
            "storage_offset",
            "split",
            "chunk",
            "unbind",
            "tensor_split",
        ),
    }
)
"""Tensor methods that describe a tensor or take it apart."""

TENSOR_ATTRIBUTES = frozenset({"T", "mT", "H", "data"})
"""Attributes of a tensor that are tensors."""

COMPUTING = (frozenset(name + end for name in TENSOR_FUNCTIONS for end in ("", "_")) | ONLY_METHODS) - (
    VIEWS | DESCRIPTIONS | {"mode"}
)
"""Methods of a tensor that compute: a strict task wants those in Triton."""

COMPUTING_BUILTINS = frozenset({"sum", "abs", "pow", "max", "min", "round", "divmod", "sorted"})
"""Python's own functions that compute when they are given a tensor."""
