"""What a rewrite is: a typed, composable transformation of a candidate's source.

A rewrite never guesses. `candidates` lists the argument settings that apply to a source; `apply` performs
one and raises `RewriteError` with the reason when it does not apply. The result computes the same function
(up to the rounding that `exact = False` admits); tests hold every rewrite to that in the interpreter.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from evaluator.types import Frozen, Scalar, Task


class RewriteArgs(BaseModel):
    """Base of a rewrite's typed arguments; its JSON schema is what structured answers are held to."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class RewriteContext(Frozen):
    """What a rewrite may know of the task: shapes it must hold for and what numerics it may use."""

    dtype: str = "float32"
    shape_params: tuple[Mapping[str, Scalar], ...] = ()
    """Parameters of every workload and check shape."""
    input_precisions: tuple[str, ...] = ("ieee",)
    allow_atomics: bool = False
    family: str = ""

    @classmethod
    def of_task(cls, task: Task) -> RewriteContext:
        """The context a task gives to its rewrites."""
        return cls(
            dtype=task.dtype,
            shape_params=tuple(shape.params for shape in (*task.workloads, *task.check_shapes)),
            input_precisions=task.input_precisions,
            allow_atomics=task.allow_atomics,
            family=task.family,
        )


class RewriteError(ValueError):
    """The rewrite does not apply to this source with these arguments; the text says why."""


ArgsT = TypeVar("ArgsT", bound=RewriteArgs)


class Rewrite(ABC, Generic[ArgsT]):
    """One operator of the catalogue. Stateless: one instance serves every source."""

    name: ClassVar[str]
    Args: ClassVar[type[RewriteArgs]]
    exact: ClassVar[bool] = True
    """Whether results stay bitwise equal; False where summation order or rounding may change."""

    @abstractmethod
    def candidates(self, source: str, context: RewriteContext) -> list[ArgsT]:
        """Every argument setting worth trying on `source`, in a stable order; empty when none applies."""

    @abstractmethod
    def apply(self, source: str, args: ArgsT, context: RewriteContext) -> str:
        """The rewritten source, comments and formatting kept elsewhere. Raises RewriteError."""

    @abstractmethod
    def explain(self, args: ArgsT) -> str:
        """One line: what changes and why it may be faster."""

    def parse_args(self, raw: Mapping[str, Any]) -> ArgsT:
        """Typed arguments from JSON-like data. Raises RewriteError naming the wrong field."""
        try:
            return self.Args.model_validate(dict(raw))  # type: ignore[return-value]
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(part) for part in first["loc"]) or "arguments"
            raise RewriteError(f"{self.name}: {field}: {first['msg']}") from None
