import pytest

from tests.policy.rewrites.harness import Interpreter


@pytest.fixture(scope="session")
def interpreter(tmp_path_factory):
    """One process that runs sources in Triton's interpreter, shared by every rewrite test."""
    process = Interpreter(tmp_path_factory.mktemp("interpreter"))
    yield process
    process.close()
