"""Sampling many answers at once from a causal language model of `transformers`.

`generate` of that library draws from the process's own random numbers, which the evaluator's checks draw from too, and
says nothing of the distribution drawn from. Here each answer has numbers of its own, from its question's seed, so that
what it says does not depend on what else is asked, and each token keeps two log-probabilities: `logprobs`, of the
distribution it was drawn from, after temperature, top-k, top-p and the schema; and `model_logprobs`, of the model
alone, which training computes again.
"""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from policy.token_draw import draw, log_probabilities
from policy.token_trie import Node

if TYPE_CHECKING:
    from torch import Tensor

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Job:
    """A prompt and how many answers to it are wanted."""

    prompt: tuple[int, ...]
    n: int
    max_tokens: int
    seed: int | None
    held: Node | None = None
    """Where answers are held to a list: what may follow what."""


@dataclass
class Sample:
    """One answer, the token that ends it included."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    model_logprobs: list[float] = field(default_factory=list)
    finish_reason: str = "length"
    text: str | None = None
    """The listed answer it is; None where answers are free."""


class _Row:
    """One answer while it is written."""

    def __init__(self, job: Job, number: int) -> None:
        self.job = job
        self.sample = Sample()
        self.node = job.held
        self._numbers = np.random.default_rng(None if job.seed is None else [job.seed, number])

    def uniform(self) -> float:
        return float(self._numbers.random())

    def take(self, token: int, logprob: float, model_logprob: float, stops: frozenset[int]) -> bool:
        """Write a token; True while more must follow."""
        sample = self.sample
        sample.tokens.append(token)
        sample.logprobs.append(logprob)
        sample.model_logprobs.append(model_logprob)
        if self.node is not None:
            self.node = self.node.following[token]
            sample.text = self.node.text
            ended = not self.node.following
        else:
            ended = token in stops
        if ended:
            sample.finish_reason = "stop"
        return not ended and len(sample.tokens) < self.job.max_tokens


@dataclass(frozen=True)
class _Sampling:
    temperature: float
    top_k: int | None
    top_p: float
    stops: frozenset[int]


def accepted_by(model: Any) -> set[str]:
    """The arguments of the model's forward; of the model inside where it is wrapped by an adapter."""
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    return set(inspect.signature(type(base).forward).parameters)


def cache_name(accepted: set[str]) -> str:
    """The argument that takes keys and values; its name changed within version 5 of transformers."""
    return "cache" if "cache" in accepted else "past_key_values"


def cache_of(output: Any) -> Any:
    """The keys and values that a forward gives back."""
    kept = getattr(output, "cache", None)
    return output.past_key_values if kept is None else kept


class Generator:
    """Samples from `model()`, whose forward takes the arguments named in `accepted`, on `device`."""

    def __init__(self, model: Callable[[], Any], accepted: set[str], device: str, batch: int) -> None:
        """`batch` answers are written at once at most; where memory runs out it is halved for good."""
        self._model, self._accepted, self._device, self._batch = model, accepted, device, batch
        self._cache_name = cache_name(accepted)

    def run(
        self, jobs: Sequence[Job], temperature: float, top_k: int | None, top_p: float, stops: frozenset[int]
    ) -> list[list[Sample]]:
        """`job.n` samples for each job."""
        import torch

        sampling = _Sampling(temperature, top_k, top_p, stops)
        wanted = [(index, number) for index, job in enumerate(jobs) for number in range(job.n)]
        found: list[list[Sample]] = [[] for _ in jobs]
        start = 0
        while start < len(wanted):
            part = wanted[start : start + self._batch]
            try:
                with torch.inference_mode():
                    samples = self._together([_Row(jobs[index], number) for index, number in part], sampling)
            except torch.OutOfMemoryError:
                if len(part) == 1:
                    raise
                self._batch = len(part) // 2
                logger.warning("policy transformers: out of memory, now %d answers at once", self._batch)
                torch.cuda.empty_cache()
                continue
            for (index, _), sample in zip(part, samples, strict=True):
                found[index].append(sample)
            start += len(part)
        return found

    def _together(self, rows: list[_Row], sampling: _Sampling) -> list[Sample]:
        import torch

        prompts = list(dict.fromkeys(row.job.prompt for row in rows))
        places = {prompt: place for place, prompt in enumerate(prompts)}
        logits, mask, cache = self._read(prompts)
        # Answers to one prompt share its reading.
        owners = torch.tensor([places[row.job.prompt] for row in rows], device=self._device)
        logits, mask = self._select(owners, logits, mask, cache)
        live = rows
        while True:
            tokens = self._draw(live, logits, sampling)
            going = [place for place, row in enumerate(live) if row.take(*tokens[place], sampling.stops)]
            if not going:
                return [row.sample for row in rows]
            ids = torch.tensor([[tokens[place][0]] for place in going], device=self._device)
            if len(going) < len(live):
                logits, mask = self._select(torch.tensor(going, device=self._device), logits, mask, cache)
                live = [live[place] for place in going]
            mask = torch.cat([mask, mask.new_ones(len(live), 1)], dim=1)
            logits, cache = self._forward(ids, mask, mask.sum(dim=1, keepdim=True) - 1, cache)

    def _read(self, prompts: Sequence[tuple[int, ...]]) -> tuple[Tensor, Tensor, Any]:
        """Logits behind each prompt, the mask of what is padding (left of shorter prompts), and the cache."""
        import torch

        longest = max(map(len, prompts))
        ids = torch.zeros(len(prompts), longest, dtype=torch.long)
        mask = torch.zeros(len(prompts), longest, dtype=torch.long)
        for place, prompt in enumerate(prompts):
            ids[place, longest - len(prompt) :] = torch.tensor(prompt)
            mask[place, longest - len(prompt) :] = 1
        ids, mask = ids.to(self._device), mask.to(self._device)
        logits, cache = self._forward(ids, mask, (mask.cumsum(dim=1) - 1).clamp(min=0), None)
        return logits, mask, cache

    def _forward(self, ids: Tensor, mask: Tensor, positions: Tensor, cache: Any) -> tuple[Tensor, Any]:
        options: dict[str, Any] = {"position_ids": positions, "logits_to_keep": 1}
        known = {name: value for name, value in options.items() if name in self._accepted}
        known[self._cache_name] = cache
        output = self._model()(input_ids=ids, attention_mask=mask, use_cache=True, **known)
        return output.logits[:, -1], cache_of(output)

    def _select(self, rows: Tensor, logits: Tensor, mask: Tensor, cache: Any) -> tuple[Tensor, Tensor]:
        """These rows of everything, in this order; the cache is changed in place."""
        cache.batch_select_indices(rows)
        return logits[rows], mask[rows]

    def _draw(self, rows: Sequence[_Row], logits: Tensor, sampling: _Sampling) -> list[tuple[int, float, float]]:
        """A token for each row, its log-probability as drawn and in the model."""
        import torch

        model = torch.log_softmax(logits.float(), dim=-1)
        found: list[tuple[int, float, float]] = [(0, 0.0, 0.0)] * len(rows)
        free = [place for place, row in enumerate(rows) if row.node is None]
        held = [place for place, row in enumerate(rows) if row.node is not None]
        for places, candidates in ((free, None), (held, self._candidates([rows[place] for place in held]))):
            if not places:
                continue
            chosen = torch.tensor(places, device=self._device)
            numbers = torch.tensor([rows[place].uniform() for place in places], dtype=torch.float64)
            values = logits[chosen] if candidates is None else _among(logits[chosen], candidates)
            logprobs = log_probabilities(values, sampling.temperature, sampling.top_k, sampling.top_p)
            index = draw(logprobs, numbers.to(self._device))[:, None]
            tokens = index if candidates is None else candidates.gather(1, index)
            told = (tokens, logprobs.gather(1, index), model[chosen].gather(1, tokens))
            for place, token, logprob, own in zip(places, *(one[:, 0].tolist() for one in told), strict=True):
                found[place] = (token, logprob, own)
        if not all(math.isfinite(logprob) for _, logprob, _ in found):
            raise ArithmeticError("the model's logits are not numbers; another dtype may help")
        return found

    def _candidates(self, rows: Sequence[_Row]) -> Tensor | None:
        """The tokens that may follow in each row, filled up with -1."""
        import torch

        following = [list(row.node.following) for row in rows if row.node is not None]
        if not following:
            return None
        longest = max(map(len, following))
        return torch.tensor([one + [-1] * (longest - len(one)) for one in following], device=self._device)


def _among(logits: Tensor, candidates: Tensor) -> Tensor:
    """The logits of each row's candidates; -inf where there is none."""
    import torch

    return logits.gather(1, candidates.clamp(min=0)).masked_fill(candidates < 0, -torch.inf)
