"""Compiles every launch of sources for a GPU that need not be there: JSON lines of paths in, errors out.

The interpreter is more permissive than the compiler, so that a rewrite's result must be shown to both.
"""

import json
import sys
import traceback
from pathlib import Path


def compile_launches(source_path, setup_path):
    """Runs the host code with launches replaced by compilation for sm_90."""
    import torch
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton.runtime.jit import JITFunction, mangle_type

    from tests.policy.rewrites.interpreter_worker import load

    options = ("num_warps", "num_stages", "num_ctas", "maxnreg")

    def run(kernel, *args, grid, warmup, **kwargs):
        given = {name: kwargs.pop(name) for name in options if name in kwargs}
        bound = kernel.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        constexprs = {p.name for p in kernel.params if p.is_constexpr}
        signature = {
            name: "constexpr" if name in constexprs else mangle_type(value) for name, value in bound.arguments.items()
        }
        constants = {name: value for name, value in bound.arguments.items() if name in constexprs}
        source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
        triton.compile(source, target=GPUTarget("cuda", 90, 32), options=given)

    JITFunction.run = run
    module, setup = load(source_path, "candidate"), load(setup_path, "setup")
    model = module.ModelNew(*setup.get_init_inputs())
    with torch.no_grad():
        model(*setup.get_inputs())


def main():
    import torch

    torch.set_num_threads(1)
    for line in sys.stdin:
        paths = json.loads(line)
        try:
            compile_launches(paths["source"], paths["setup"])
            answer = {"error": None}
        except Exception:  # the report goes to the test that sent the source
            answer = {"error": traceback.format_exc()}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[3]))
    main()
