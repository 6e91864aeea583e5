"""Ask and tell: what to judge next, and what to make of the answers.

The state changes only in `begin` and `tell`, both fed by journal events, live and on resume alike; `ask` reads it
and draws from streams named by the generation. A resumed run therefore asks the same questions.
"""

from __future__ import annotations

import math
from bisect import insort
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from evaluator.autotune import split_autotune
from evaluator.source_hash import ast_hash, structure_hash
from evaluator.tunables import extract
from evaluator.types import Evaluation, KernelSource, Task
from evo.archive import Archive, Cell
from evo.asking import Asking
from evo.bandit import Bandit
from evo.candidate import Candidate, Record
from evo.config_search import SearchConfig
from evo.events import Batch, Evaluated, GenerationEnd
from evo.islands import Islands
from evo.measures import cell_of, syntax_words
from evo.novelty import NoveltyGate
from evo.operators import CrossoverOperator, Draft, Failure, RepairOperator, RewriteOperator, TuneOperator, Variation
from evo.pareto import Front, costs
from evo.population import Individual
from evo.prior import Prior
from evo.selection import Family
from evo.streams import Streams
from evo.tuning import Tuner
from policy.types import RewriteStep

ATTEMPTS = 16
"""Earlier children of a parent that a request shows, the latest ones."""
KEPT_FAILURES = 32
"""Failures that can still be repaired, the latest ones."""


@dataclass(frozen=True)
class Share:
    """How a batch is divided."""

    tuned: int
    members: tuple[int, ...] = ()
    """The policy for each request that the bandit decided on; others are drawn by weight."""
    others: Mapping[str, int] = field(default_factory=dict)
    """Places of the operators that ask no policy, by name."""

    @property
    def settled(self) -> int:
        """Places that no policy is asked for."""
        return self.tuned + sum(self.others.values())


@dataclass(frozen=True, slots=True)
class Judged:
    """What is kept of every candidate. A whole record is kept only of those that can still have children."""

    structure: str
    speedup: float | None


@dataclass(frozen=True)
class Plan:
    """One batch with the sources that belong to it, in the same order."""

    batch: Batch
    sources: tuple[KernelSource, ...]


class Scheduler:
    """The search's whole state, and the two verbs on it."""

    def __init__(
        self,
        config: SearchConfig,
        task: Task,
        asking: Asking,
        streams: Streams,
        read: Callable[[str], str],
        prior: Prior | None = None,
    ) -> None:
        self.task = task
        self.streams = streams
        self.islands = Islands(config, streams)
        self.archive = Archive()
        self.tuner = Tuner(config.tuning, read)
        self.gate = NoveltyGate(config.novelty)
        self.family = Family(config.parents.kind == "puct")
        self.source = read
        self.generation = 0
        self.judged: dict[str, Judged] = {}
        """Every judged candidate by its id."""
        self.failures: deque[Failure] = deque(maxlen=KEPT_FAILURES)
        self.best: Record | None = None
        self.more_seeds: Callable[[], list[Draft]] = list
        """Drafts of the first generation beside the task's seed; asked for when it is planned."""
        self.bandit = Bandit(config.operators)
        self._config = config
        self._sized = "code_size" in config.objectives
        self._asking = asking
        self._front = Front()
        self._shares: dict[int, Share] = {}
        self._rewrite = RewriteOperator(asking, config)
        self._tune = TuneOperator(prior, config.tuning.prior_pool)
        self._others = variations(config)
        self._pending: dict[str, Candidate] = {}
        self._children: dict[str, list[Record]] = {}
        self._parents: dict[str, Record] = {}
        """Whose children the batch can hold, where failures are repaired."""
        self._syntax: dict[str, tuple[str, ...]] = {}
        self._offspring: list[Individual] = []
        self._births = 0
        self.in_generation = False
        self.batch: list[Record] = []
        self.best_before_batch: str | None = None

    @property
    def pending(self) -> list[Candidate]:
        """Candidates of the current batch that nobody has judged yet."""
        return list(self._pending.values())

    @property
    def pareto(self) -> dict[str, dict[str, float | None]]:
        """What each member of the Pareto front takes."""
        return {record.id: costs(record) for record in self._front.records}

    def children(self, candidate_id: str) -> list[Record]:
        """The latest judged children of a candidate in the order of birth; at most `ATTEMPTS`."""
        return self._children.get(candidate_id, [])

    def cell(self, record: Record) -> Cell:
        """Where in the archive a passed candidate belongs."""
        return cell_of(self._syntax[record.candidate.structure], record.evaluation)

    def news(self, candidate_id: str, evaluation: Evaluation) -> Evaluated:
        """The event of a verdict, with what a resume would have to read from the source."""
        candidate = self._pending[candidate_id]
        known = not evaluation.status.passed or candidate.structure in self._syntax
        # Once a structure: its configs differ in nothing that is read.
        syntax = () if known else syntax_words(self.source(candidate.source_sha))
        return Evaluated(candidate=candidate_id, evaluation=evaluation, syntax=syntax)

    def ask(self, count: int) -> Plan:
        """The next batch of at most `count`; empty when nothing new can be thought of. Changes nothing.

        Raises WaitInterruptedError when Ctrl-C came while the policy's answers were awaited.
        """
        if self.generation == 0:
            return self._plan([*self._seed_drafts(), *self.more_seeds()])
        share = self._shares.get(self.generation) or self._share(count, self.generation)
        drafts = self._tune.propose(self, self.generation, share.tuned)
        tuned = len(drafts)
        for name, wanted in share.others.items():
            drafts += self._others[name].propose(self, self.generation, wanted, _programs(drafts))
        wanted = count - len(drafts)
        drafts += self._rewrite.propose(self, self.generation, wanted, _programs(drafts), share.members)
        if len(drafts) < count:
            # Where rewriting has run dry, what is left of the batch goes to the tuner.
            more = self._tune.propose(self, self.generation, count - len(drafts) + tuned)
            known = _programs(drafts)
            drafts += [draft for draft in more if ast_hash(draft.source.text) not in known]
        return self._plan(drafts[:count], self._asked(share))

    def _asked(self, share: Share) -> Counter[str]:
        """Places by arm, of those that the bandit gave away and that can come to nothing."""
        if self._config.operators.kind == "fixed":
            return Counter()
        return Counter(self._rewrite.arms[member] for member in share.members) + Counter(share.others)

    def _share(self, count: int, generation: int) -> Share:
        """How a batch of `count` is divided between tuning, other operators and the policies."""
        others = {name: operator for name, operator in self._others.items() if operator.possible(self)}
        if self._config.operators.kind == "fixed":
            tuned = round(self._config.tuning.share * count)
            return Share(tuned, others=self._portions(others, count, count - tuned, generation))
        rewrites = self._rewrite.arms
        can_tune = bool(self.tuner.shares(1))
        places = self.bandit.divide([*[self._tune.name] * can_tune, *others, *rewrites], count)
        given = Counter(places)
        return Share(
            given[self._tune.name],
            tuple(rewrites.index(arm) for arm in places if arm in rewrites),
            {name: given[name] for name in others if given[name]},
        )

    def _portions(self, names: Iterable[str], count: int, room: int, generation: int) -> dict[str, int]:
        """Places of each operator by its configured share of a batch, `room` of them at most."""
        portions: dict[str, int] = {}
        for name in names:
            wanted = portion(getattr(self._config.operators, name), count, generation)
            portions[name] = min(wanted, room - sum(portions.values()))
        return {name: places for name, places in portions.items() if places > 0}

    def look_ahead(self, count: int) -> None:
        """Build the requests of the next generation, of `count` candidates, from what is known now.

        Called between `begin` and the first `tell`, live and on resume alike. Does nothing for a policy that cannot
        be asked ahead.
        """
        if not self._asking.ahead or count <= 0:
            return
        # The share is kept: what the batch earns meanwhile cannot change what was already asked.
        share = self._share(count, self.generation + 1)
        self._shares = {self.generation + 1: share}
        self._rewrite.prepare(self, self.generation + 1, count - share.settled, share.members)

    def ask_ahead(self) -> None:
        """Send what `look_ahead` built, once; `ask` collects the answers."""
        self._rewrite.submit()

    def drop_ahead(self) -> None:
        """Cancel what was asked ahead."""
        self._rewrite.cancel()

    def _seed_drafts(self) -> list[Draft]:
        assert self.task.seed_source is not None  # the campaign refuses tasks without a seed
        # Configs of an autotuned seed are judged each as its own source.
        return [
            Draft(KernelSource(text=text), "seed", (), structure_hash(text), extract(text).defaults)
            for text in split_autotune(self.task.seed_source)
        ]

    def _plan(self, drafts: list[Draft], asked: Mapping[str, int] | None = None) -> Plan:
        candidates = tuple(self._candidate(draft, self._births + index) for index, draft in enumerate(drafts))
        batch = Batch(generation=self.generation, candidates=candidates, asked=dict(asked or {}))
        return Plan(batch, tuple(draft.source for draft in drafts))

    def _candidate(self, draft: Draft, number: int) -> Candidate:
        proposal = draft.proposal
        history: tuple[RewriteStep, ...] = draft.parents[0].rewrites if draft.parents else ()
        candidate = Candidate(
            id=f"c{number:06d}",
            generation=self.generation,
            parent_ids=tuple(parent.id for parent in draft.parents),
            operator=draft.operator,
            island=draft.island,
            arm=draft.arm,
            source_sha=draft.source.sha,
            ast_hash=ast_hash(draft.source.text),
            structure=draft.structure,
            config=draft.config or extract(draft.source.text).defaults,
            rewrites=history,
        )
        if proposal is None:
            return candidate
        return candidate.model_copy(
            update={
                "rewrites": (*history, *proposal.rewrites),
                **{name: getattr(proposal, name) for name in _FROM_PROPOSAL},
            }
        )

    def begin(self, batch: Batch) -> None:
        """A batch was recorded: its candidates are taken."""
        self._births += len(batch.candidates)
        self._offspring = []
        self.batch = []
        self.in_generation = True
        self.best_before_batch = self.best.id if self.best else None
        if RepairOperator.name in self._others:
            self._parents = self._possible_parents()
        made = Counter(candidate.arm for candidate in batch.candidates)
        for arm, requests in batch.asked.items():
            self.bandit.miss(arm, max(0, requests - made[arm]))
        for candidate in batch.candidates:
            self._pending[candidate.id] = candidate
            self.gate.remember(candidate)
            self.family.born(candidate.structure, [self._structure(parent) for parent in candidate.parent_ids])

    def tell(self, judged: Evaluated) -> Record:
        """An answer was recorded. Raises KeyError for a candidate that is not pending."""
        record = Record(candidate=self._pending.pop(judged.candidate), evaluation=judged.evaluation)
        self.batch.append(record)
        kept = _kept(record)
        structure, speedup, parents = record.candidate.structure, record.speedup, record.candidate.parent_ids
        self.judged[record.id] = Judged(structure, speedup)
        for parent in parents:
            self._note_child(parent, kept)
        self.tuner.tell(kept, self._structure(parents[0]) if parents else None)
        self.family.judged(structure, math.log(speedup) if speedup else None)
        self.bandit.tell(record, self.judged[parents[0]] if parents else None)
        self._offspring.append(self.islands.individual(kept, self._size(kept) if self._sized else 0))
        if record.passed and structure not in self._syntax:  # journals of older versions lack the words
            self._syntax[structure] = judged.syntax or syntax_words(self.source(record.candidate.source_sha))
        if speedup is not None:
            self.archive.add(self.cell(kept), kept)
            if self.best is None or speedup > (self.best.speedup or 0.0):
                self.best = kept
        return record

    def _possible_parents(self) -> dict[str, Record]:
        """Whose children a batch can hold, by id."""
        alive = [record for island in self.islands for record in island.records]
        return {one.id: one for one in (*alive, *self.archive.owners, *(failure.base for failure in self.failures))}

    def _failure(self, record: Record) -> Failure | None:
        """A failed child with its first parent, which it can be taken up from; None without one."""
        parents = record.candidate.parent_ids
        base = self._parents.get(parents[0]) if parents else None
        return None if base is None else Failure(base, _kept(record))

    def _note_child(self, parent: str, child: Record) -> None:
        known = self._children.setdefault(parent, [])
        insort(known, child, key=lambda record: record.number)
        del known[:-ATTEMPTS]

    def _forget(self) -> None:
        """Drop the children of those that can have no more: survivors, owners and late failures alone are parents."""
        alive = {record.id for island in self.islands for record in island.records}
        alive |= {owner.id for owner in self.archive.owners}
        alive |= {failure.record.id for failure in self.failures}
        self._children = {parent: known for parent, known in self._children.items() if parent in alive}

    def _structure(self, candidate_id: str) -> str:
        return self.judged[candidate_id].structure

    def _size(self, record: Record) -> int:
        return len(self.source(record.candidate.source_sha))

    def end_generation(self, seconds: float) -> GenerationEnd:
        """Select survivors once the whole batch is judged, and move on."""
        assert self.in_generation
        assert not self._pending
        self.islands.advance(self._offspring, self.generation, self.archive, self._size)
        self.bandit.fade()
        self._front.add(self.batch)
        # By birth: in which order verdicts come in is up to the judge.
        failed = sorted((one for one in self.batch if not one.passed), key=lambda one: one.number)
        self.failures.extend(filter(None, map(self._failure, failed)))
        self._forget()
        summary = GenerationEnd(
            generation=self.generation,
            evaluations=len(self.judged),
            population=tuple(member.record.id for member in self.islands.members),
            archive={"/".join(cell): owner.id for cell, owner in self.archive},
            islands=self.islands.ends(),
            best=self.best.id if self.best else None,
            best_speedup=self.best.speedup if self.best else None,
            stream=self.streams.seed("checkpoint", self.generation),
            seconds=seconds,
        )
        self.generation += 1
        self.in_generation = False
        return summary


_NOT_KEPT = {"explanation": "", "messages": (), "answer": "", "sampling": {}}
"""What only the journal keeps of a candidate: prompts and answers are larger than everything else together."""


def _kept(record: Record) -> Record:
    return Record(candidate=record.candidate.model_copy(update=_NOT_KEPT), evaluation=record.evaluation)


def variations(config: SearchConfig) -> dict[str, Variation]:
    """The operators beside tuning and rewriting that a config switches on, by name."""
    every: list[Variation] = [CrossoverOperator(config), RepairOperator()]
    return {operator.name: operator for operator in every if getattr(config.operators, operator.name) > 0}


def portion(share: float, count: int, generation: int) -> int:
    """Places of a batch of `count` for a share of it. Less than a place adds up to one over several generations."""
    return math.floor(share * count * (generation + 1)) - math.floor(share * count * generation)


def _programs(drafts: Sequence[Draft]) -> set[str]:
    return {ast_hash(draft.source.text) for draft in drafts}


_FROM_PROPOSAL = ("explanation", "policy", "policy_version", "messages", "answer", "sampling")
