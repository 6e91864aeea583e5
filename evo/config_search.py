"""Settings of the evolutionary search."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from evo.config_section import Section


class ArchiveConfig(Section):
    """MAP-Elites over measured descriptors."""

    enabled: bool = True
    """Keep an archive beside the population."""
    parent_share: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Share of parents drawn from the archive; the rest come from the population."""
    remeasure: PositiveInt | None = 5
    """Where latencies are measured: generations after which up to four owners of cells and leaders of islands are timed
    again, those timed least often first; each counts by its middle timing. `null`: never."""


class ParentsConfig(Section):
    """How parents are chosen."""

    kind: Literal["tournament", "weights", "puct", "lexicase"] = "tournament"
    """`tournament` ranks by the objectives, and archive cells not at all; `weights` draws from what is faster than the
    median and has few children; `puct` takes what promises most by its children, its rank and its visits; `lexicase`
    keeps, workload by workload in random order, what is nearly the fastest there."""
    sharpness: PositiveFloat = 10.0
    """With `weights`: how hard the line at the median is, per median absolute deviation of log speedup."""
    exploration: Annotated[float, Field(ge=0)] = 1.0
    """With `puct`: what an untried parent is worth, in units of the range of log speedups."""
    epsilon: Annotated[float, Field(ge=0)] | None = None
    """With `lexicase`: how far behind the fastest is still nearly as fast, in log speedup; when left out, the median
    absolute deviation of those that are left."""
    spread: bool = True
    """With all but `tournament`: take two of one lineage (a parent and an ancestor of it, or the same one twice) into a
    batch only when nothing else is left."""


class IslandsConfig(Section):
    """Populations that evolve apart and exchange copies of their best."""

    count: Annotated[int, Field(ge=1, le=64)] = 1
    """Islands; the survivors of `search.population` are divided among them."""
    strategies: Annotated[
        tuple[Literal["open", "memory", "parallelism", "instructions"], ...], Field(min_length=1, strict=False)
    ] = ("open", "memory", "parallelism", "instructions")
    """Directions, given to the islands in turn: told to a language model, and what rules then draw more often."""
    migrate_every: PositiveInt = 10
    """Generations between two migrations round the ring."""
    migrants: Annotated[float, Field(ge=0, le=1)] = 0.1
    """Share of an island's survivors that are copied to the next one, at least one; 0 keeps the islands apart."""
    stagnation: PositiveInt | None = 20
    """Generations without a better best after which an island starts again from a random cell of the archive; the
    island with the best of the run never does. `null`: never."""


class OperatorsConfig(Section):
    """How a batch is divided between tuning, rewriting, crossover and repair, and among policies."""

    kind: Literal["fixed", "bandit"] = "fixed"
    """`fixed`: by `search.tuning.share` and the policies' `weight`; `bandit`: more to what gained most of late."""
    crossover: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of a batch, taken from rewriting, that gives a kernel the rewrites of another that it lacks, or one of its
    functions; with `bandit` anything above 0 makes it an arm."""
    repair: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of a batch, taken from rewriting, that tries failed children again without their last rewrite or with
    another argument of it; with `bandit` anything above 0 makes it an arm."""
    decay: Annotated[float, Field(gt=0, le=1)] = 0.95
    """What a gain still counts a generation later."""
    exploration: Annotated[float, Field(ge=0)] = 0.5
    """With `bandit`: worth of what was seldom tried, in units of the largest recent gain of one candidate."""
    charge: Literal["candidates", "costs"] = "candidates"
    """What a gain is divided by: candidates, or seconds of judging and tokens. Seconds differ from run to run, and with
    them what is chosen; a resumed run reads them from its journal."""
    token_seconds: Annotated[float, Field(ge=0)] = 0.001
    """With `costs`: seconds that a token of a prompt or an answer is charged as."""


class NoveltyConfig(Section):
    """What is too much like a known kernel to be judged, beside what is the same."""

    similarity: Annotated[float, Field(ge=0, le=1)] | None = 0.99
    """Answers with whole files or edits are dropped above this share of shingles in common with a survivor of their
    island or a candidate of their batch; rewrites of the catalogue never are. `null` judges everything new."""
    shingle: PositiveInt = 5
    """Tokens in a row that make a shingle."""


class TuningConfig(Section):
    """Optuna tunes the tunables of each structure."""

    sampler: Literal["tpe", "random", "cmaes", "gp", "grid"] = "tpe"
    """How Optuna proposes settings of a structure's tunables."""
    share: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Share of each batch spent on tuning known structures; the rest changes structure."""
    trials: Annotated[int, Field(ge=0)] = 12
    """At most this many trials for one structure."""
    prior: Literal["none", "cost_model"] = "none"
    """`cost_model` has each config's latency modelled before, and measures those that promise most."""
    prior_pool: Annotated[int, Field(ge=2, le=64)] = 4
    """Configs that the cost model chooses from for each one that is measured; a tenth of the others is, at random."""


class SearchConfig(Section):
    """The evolutionary search (DEAP)."""

    population: PositiveInt = 16
    """Survivors kept after each generation."""
    offspring: PositiveInt = 8
    """Candidates judged per generation."""
    selection: Literal["tournament", "nsga2"] = "tournament"
    """How survivors are chosen, and parents by `tournament`; `nsga2` weighs several objectives."""
    tournament_size: PositiveInt = 3
    """Candidates that compete for one place as a parent in a tournament."""
    objectives: tuple[Literal["speedup", "registers", "shared_memory", "code_size"], ...] = ("speedup",)
    """First is what elites are ranked by; more than one asks for `selection: nsga2`."""
    parents: ParentsConfig = ParentsConfig()
    """Who gets children."""
    archive: ArchiveConfig = ArchiveConfig()
    """The best candidate of every kind of kernel."""
    islands: IslandsConfig = IslandsConfig()
    """Populations that evolve apart; one by default, where nothing migrates."""
    novelty: NoveltyConfig = NoveltyConfig()
    """What is too much like a known kernel."""
    operators: OperatorsConfig = OperatorsConfig()
    """Who gets how much of a batch."""
    tuning: TuningConfig = TuningConfig()
    """Tuning of block sizes, warps and stages."""
    playbook: str | None = None
    """A playbook.json or a run's folder: what it learned weighs the rule policy's rewrites and the bandit's arms, and
    is noted in prompts."""
    prefetch: bool = True
    """Ask a language model for the next generation while this one is judged; no effect on the rule policy."""
