"""Runs sources in Triton's interpreter, one JSON request per line; started by `harness.Interpreter`."""

import importlib.util
import json
import sys
import traceback
from pathlib import Path


def load(path, name):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(request):
    import torch

    module = load(request["source"], "candidate")
    setup = load(request["setup"], "setup")
    torch.manual_seed(7)
    model = module.ModelNew(*setup.get_init_inputs())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape).to(parameter.dtype) * 0.5 + 1)
    torch.manual_seed(11)
    inputs = setup.get_inputs()
    before = [value.clone() if isinstance(value, torch.Tensor) else value for value in inputs]
    with torch.no_grad():
        outputs = model(*inputs)
    for old, new in zip(before, inputs, strict=True):
        if isinstance(old, torch.Tensor) and not torch.equal(old, new):
            raise AssertionError("the candidate changed its input")
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    # numpy has no bfloat16; float32 holds every value of the narrower types.
    return [value.float() if value.is_floating_point() else value for value in outputs]


def main():
    import numpy as np
    import torch

    torch.set_num_threads(1)
    np.seterr(all="ignore")
    answers = sys.stdout
    sys.stdout = sys.stderr
    for line in sys.stdin:
        request = json.loads(line)
        try:
            outputs = run(request)
            np.savez(request["result"], *[value.numpy() for value in outputs])
            answer = {"error": None, "count": len(outputs)}
        except Exception:  # the report goes to the test that sent the source
            answer = {"error": traceback.format_exc(), "count": 0}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[3]))
    main()
