"""The tables of the static stage: what a candidate may import, name and call outside its kernels."""

from __future__ import annotations

IMPORTS = frozenset(
    {
        *("torch", "torch.nn", "torch.nn.functional", "torch._inductor.runtime"),
        *("triton", "triton.language", "triton.tools.tensor_descriptor"),
        *("math", "typing", "dataclasses", "functools", "itertools", "collections", "collections.abc", "enum"),
        *("operator", "__future__"),
    }
)
IMPORT_PREFIXES = ("torch._inductor.runtime.", "triton.language.")

FORBIDDEN_NAMES = {
    **dict.fromkeys(("exec", "eval", "compile", "__import__", "breakpoint"), "runs code the judge cannot read"),
    **dict.fromkeys(("open", "input"), "reaches outside of the kernel"),
    **dict.fromkeys(
        ("globals", "locals", "vars", "__builtins__", "__loader__", "__spec__"), "reaches into the interpreter"
    ),
    **dict.fromkeys(("setattr", "delattr"), "may patch what the judge relies on"),
    "id": "identifies tensors across calls, as a cache would",
}

FORBIDDEN_ATTRIBUTES = {
    **dict.fromkeys(("data_ptr", "untyped_storage", "storage", "_cdata"), "identifies or reaches a tensor's memory"),
    **dict.fromkeys(
        ("f_back", "f_globals", "f_locals", "gi_frame", "tb_frame", "cr_frame"), "walks the caller's frames"
    ),
    **dict.fromkeys(
        ("training", "requires_grad", "is_grad_enabled"), "lets the kernel behave differently when it is judged"
    ),
    **dict.fromkeys(
        ("register_forward_hook", "register_forward_pre_hook", "register_module_forward_hook", "register_hook"),
        "runs code outside of the forward",
    ),
    **dict.fromkeys(("is_meta", "_version"), "tells a judged call from a timed one"),
}

ALLOWED_DUNDERS = frozenset({"__init__", "__name__", "__version__", "__post_init__"})

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
    "triton.testing": "has no place in a kernel file",
    "triton.runtime": "reaches into the launcher",
    "triton.compiler": "reaches into the compiler",
    "triton.knobs": "changes global settings",
    "triton.backends": "reaches into the compiler",
}
"""Dotted prefixes under the imported roots."""

ALLOWED_CUDA = frozenset({"get_device_properties", "current_device", "is_available", "get_device_capability"})
"""Names of `torch.cuda` that do no harm; streams, events, graphs and synchronisation are the judge's."""

TORCH_ALLOCATION = frozenset(
    {
        *("empty", "empty_like", "empty_strided", "zeros", "zeros_like", "ones", "full", "full_like", "tensor"),
        *("arange", "as_strided", "broadcast_shapes", "result_type", "promote_types", "is_tensor", "numel"),
        *("Tensor", "Size", "device", "dtype", "no_grad", "inference_mode", "finfo", "iinfo", "memory_format"),
        *("float16", "bfloat16", "float32", "float64", "half", "float", "double", "int8", "int16", "int32", "int64"),
        *("uint8", "long", "int", "bool", "float8_e4m3fn", "float8_e5m2", "contiguous_format", "channels_last"),
        *("nn", "cuda", "autograd", "strided", "flatten", "reshape", "transpose", "permute", "squeeze", "unsqueeze"),
        "preserve_format",
    }
)
"""Members of `torch` that only allocate, describe or view: all that a strict task allows outside of kernels."""

COMPUTE_METHODS = frozenset(
    {
        *(
            "matmul",
            "mm",
            "bmm",
            "addmm",
            "baddbmm",
            "mv",
            "dot",
            "einsum",
            "softmax",
            "log_softmax",
            "sigmoid",
            "tanh",
        ),
        *(
            "relu",
            "relu_",
            "gelu",
            "silu",
            "exp",
            "exp2",
            "log",
            "log2",
            "sqrt",
            "rsqrt",
            "pow",
            "square",
            "abs",
            "neg",
        ),
        *("sum", "mean", "var", "std", "norm", "prod", "cumsum", "cumprod", "logsumexp", "amax", "amin", "argmax"),
        *("argmin", "sort", "topk", "add", "add_", "sub", "sub_", "mul", "mul_", "div", "div_", "clamp", "clamp_"),
        *("where", "masked_fill", "masked_fill_", "gather", "scatter", "scatter_", "index_select", "index_add_"),
        *("layer_norm", "rms_norm", "batch_norm", "conv1d", "conv2d", "conv3d", "linear", "cross_entropy", "lerp"),
        *("addcmul", "addcdiv", "outer", "roll", "flip", "repeat_interleave", "bincount", "histc", "round", "floor"),
    }
)
"""Tensor methods and functions that compute: a strict task wants those in Triton."""

LAYERS = frozenset(
    {
        *("Linear", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"),
        *("LayerNorm", "RMSNorm", "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "GroupNorm", "InstanceNorm2d"),
        *("Embedding", "Softmax", "LogSoftmax", "ReLU", "GELU", "SiLU", "Sigmoid", "Tanh", "MaxPool2d", "AvgPool2d"),
        *("CrossEntropyLoss", "MSELoss", "MultiheadAttention", "LSTM", "GRU", "Sequential"),
    }
)
"""`torch.nn` layers: fine as holders of parameters, not to be called by a strict task."""
