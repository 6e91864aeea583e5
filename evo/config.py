"""The campaign's settings. Every key has a docs page line; every default is what most users want.

Files are read by `evo.config_file`, which reports errors with file:line:column and the nearest valid key.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, PositiveFloat, PositiveInt, Tag

from evo.config_backend import BackendConfig, LocalBackendConfig
from evo.config_budget import BudgetConfig, FinalistsConfig
from evo.config_learning import LearningConfig
from evo.config_library import SeedsConfig
from evo.config_search import SearchConfig
from evo.config_section import Section
from evo.config_suite import SuiteConfig


class CpuEvaluatorConfig(Section):
    """Judges on the CPU: Triton's interpreter for correctness, a cost model for latency (modelled)."""

    type: Literal["cpu"] = "cpu"
    """Which evaluator judges."""
    target: str = "h200"
    """GPU to compile and model for; `kernevo doctor` lists the known ones."""
    workers: Annotated[int, Field(ge=1, le=256)] | None = None
    """Candidates judged at once; the number of CPU cores when left out."""
    timeout_s: PositiveFloat = 30.0
    """Wall-clock limit of one stage of one candidate."""
    memory_mb: Annotated[int, Field(ge=256)] = 6144
    """Address space a candidate's process may add to what the prewarmed process holds."""
    cache: bool = True
    """Reuse verdicts of identical sources, across runs too."""
    cache_dir: str | None = None
    """Where verdicts are kept; the user's cache folder when left out."""
    seed: int = 0
    """Seed of the check inputs. Kept out of the candidate's process."""


def _device_form(value: Any) -> str:
    """Which way of naming GPUs is meant, so that a mistake is explained once and not for each way."""
    if isinstance(value, list | tuple):
        return "list"
    return "word" if isinstance(value, str) and not value.isdecimal() else "index"


def _as_tuple(value: Any) -> Any:
    """A list of YAML or JSON, also where a run's resolved config is read strictly."""
    return tuple(value) if isinstance(value, list) else value


Index = Annotated[int, Field(ge=0)]
Devices = Annotated[
    Annotated[Literal["all"], Tag("word")]
    | Annotated[Index, Tag("index")]
    | Annotated[tuple[Index, ...], Field(min_length=1), BeforeValidator(_as_tuple), Tag("list")],
    Discriminator(_device_form),
]


class GpuEvaluatorConfig(Section):
    """Judges on a GPU: correctness on secret inputs at full size, latency by three clocks (measured)."""

    type: Literal["gpu"] = "gpu"
    """Which evaluator judges."""
    platform: Literal["cuda", "interpreter"] = "cuda"
    """`interpreter` tries the same machinery without a GPU; its latencies mean nothing."""
    device: Devices = "all"
    """Which of the visible GPUs (CUDA_VISIBLE_DEVICES) judge: `all`, one index, or a list of indices."""
    target: str = "h200"
    """GPU model whose assembler checks registers and shared memory before a candidate meets the GPU."""
    workers: Annotated[int, Field(ge=1, le=256)] | None = None
    """Candidates judged at once on each GPU, where one at a time is timed. When left out, each GPU's share of half the
    CPU cores, at most eight."""
    timeout_s: PositiveFloat = 60.0
    """Wall-clock limit of one step of one candidate."""
    memory_mb: Annotated[int, Field(ge=256)] = 6144
    """Host memory that a candidate's processes may add: address space, and private memory on the GPU's side."""
    smoke: bool = True
    """Run candidates in Triton's interpreter before they meet the GPU; it sees reads past the end of a tensor."""
    duplicates: Literal["refuse", "judge"] = "refuse"
    """`refuse` ends a candidate that runs the same machine code as a passed one with the verdict `duplicate`."""
    baseline: Literal["best", "eager", "compile", "max-autotune", "seed", "none"] = "best"
    """What speedups are over; `best` is the fastest of eager, torch.compile and max-autotune, for each workload."""
    timing: Literal["auto", "screen", "confirm"] = "auto"
    """`screen` takes 30 samples, `confirm` at least 100; `auto` confirms what screens near the best so far."""
    max_samples: Annotated[int, Field(ge=30)] | None = None
    """At most this many samples in the `confirm` tier; when left out, until the median is known well enough."""
    thorough: bool = False
    """Also run each correct kernel under compute-sanitizer and read its hardware counters, a minute or two each."""
    energy: bool = True
    """Measure energy per call of what is confirmed; takes 0.3 s for each workload."""
    allow_busy: bool = False
    """Measure although other processes use the GPU."""
    cache: bool = False
    """Reuse verdicts and latencies of identical sources, across runs too."""
    cache_dir: str | None = None
    """Where verdicts are kept; the user's cache folder when left out."""
    seed: int = 0
    """Seed of the check inputs. Kept out of the candidate's process."""


EvaluatorConfig = Annotated[CpuEvaluatorConfig | GpuEvaluatorConfig, Field(discriminator="type")]


class RulePolicyConfig(Section):
    """Proposes rewrites from the catalogue; needs no model."""

    type: Literal["rule"] = "rule"
    """Which policy proposes."""
    weight: PositiveFloat = 1.0
    """Share of the requests in a list of policies, relative to the others' weights."""
    max_steps: Annotated[int, Field(ge=1, le=8)] = 2
    """At most this many rewrites composed into one child."""
    rewrites: tuple[str, ...] | None = None
    """Names of the rewrites to use; the whole catalogue when left out."""


class ModelPolicySection(Section):
    """What policies that ask a language model have in common."""

    weight: PositiveFloat = 1.0
    """Share of the requests in a list of policies, relative to the others' weights."""
    form: Literal["structured", "diff", "full"] = "structured"
    """What an answer is: rewrites of the catalogue as JSON, search-and-replace blocks, or the whole file."""
    phases: Annotated[tuple[Literal["analyse", "generate"], ...], Field(strict=False)] = ("generate",)
    """`[analyse, generate]` first asks what bounds the parent; all its children share that analysis."""
    tools: Annotated[
        tuple[Literal["search_kernels", "search_documents", "evaluate_kernel"], ...], Field(strict=False)
    ] = ()
    """What the model may call while it analyses a parent; needs `analyse` in `phases`, and `type: openai`."""
    documents: str | None = None
    """Folder whose .md, .rst and .txt files `search_documents` finds, and whose .py files `search_kernels` finds."""
    tool_rounds: Annotated[int, Field(ge=1, le=32)] = 4
    """Answers with calls of tools in one analysis; then the model must come to an end."""
    tune: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of the requests that ask for other values of a correct parent's tunables in place of a new structure."""
    rewrites: tuple[str, ...] | None = None
    """Names of the rewrites that structured answers may use; the whole catalogue when left out."""
    max_steps: Annotated[int, Field(ge=1, le=8)] = 1
    """Rewrites in one structured answer; with 1 its schema lists every answer that applies, and nothing else fits."""
    width: Annotated[int, Field(ge=0, le=64)] = 4
    """Earlier attempts that a prompt shows, the best by reward."""
    attempts: str | None = None
    """JSONL file that keeps every judged candidate: prompts then show the best of all, of earlier runs too; when left
    out, of the parent's latest children."""
    temperature: Annotated[float, Field(ge=0, le=2)] = 0.8
    """Randomness of the answers."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 0.95
    """Share of probability that tokens are drawn from."""
    max_tokens: Annotated[int, Field(ge=16)] = 2048
    """Tokens of one answer at most; never more than half of the context."""
    tokenizer: str | None = None
    """Folder with the model's tokenizer, to count prompts; without it vLLM's server counts, else they are estimated."""
    repair: bool = True
    """Send an answer that cannot be used back once, with the reason."""
    on_failure: Literal["fallback", "stop"] = "fallback"
    """When the server fails or a budget is spent: rules answer in its place, or the campaign stops."""
    pause_s: Annotated[float, Field(ge=0)] = 30.0
    """With `fallback`: seconds without questions after a server could not be reached or refused."""
    unusable_limit: PositiveInt = 50
    """With `stop`: requests in a row without one usable answer before that counts as a failure."""


class OpenAIPolicyConfig(ModelPolicySection):
    """Asks a language model behind an OpenAI-compatible server, vLLM's first; needs `pip install 'kernevo[llm]'`."""

    type: Literal["openai"]
    """Which policy proposes."""
    model: Annotated[str, Field(min_length=1)]
    """Name that the server knows the model by (`--served-model-name` of `vllm serve`)."""
    base_url: str = "http://localhost:8000/v1"
    """Where the server listens; usually ends in /v1."""
    api_key_env: str = "OPENAI_API_KEY"
    """Environment variable with the API key (`EMPTY` is sent where it is unset); the key itself is never stored."""
    server: Literal["vllm", "openai"] = "vllm"
    """`vllm` also asks for token ids; `openai` sends nothing that other servers do not know."""
    adapter: str | None = None
    """LoRA adapter to ask in place of the model, by its name on the server."""
    adapter_path: str | None = None
    """Folder on the server's machine that vLLM loads the adapter from first; unloaded again at the end."""
    json_schema: Literal["response_format", "structured_outputs", "guided_json", "off"] = "response_format"
    """Field that holds structured answers to their schema: every server's, vLLM's own, vLLM's before 0.12, none."""
    send_seed: bool = True
    """Send a seed with every request; `false` for servers that cannot, such as vLLM on a CPU with long prompts."""
    context_tokens: Annotated[int, Field(ge=512)] | None = None
    """Tokens of prompt and answer together; what the server says when left out, or 8192 where it does not."""
    logprobs: bool = True
    """Ask for the log-probability of every token of an answer, which learning needs."""
    extra_body: dict[str, Any] = Field(default={})
    """More fields of every request, e.g. `{chat_template_kwargs: {enable_thinking: false}}`. No place for secrets."""
    timeout_s: PositiveFloat = 120.0
    """Seconds that one attempt may take."""
    retries: Annotated[int, Field(ge=0, le=20)] = 3
    """Attempts after the first, with growing pauses; what the server says in Retry-After is kept to."""
    concurrency: Annotated[int, Field(ge=1, le=1024)] = 64
    """Requests in flight at once."""
    requests_per_minute: PositiveFloat | None = None
    """Requests sent in a minute at most."""
    tokens_per_minute: PositiveFloat | None = None
    """Tokens of prompts and longest answers in a minute at most."""
    price_prompt: Annotated[float, Field(ge=0)] = 0.0
    """Dollars per million tokens of prompts."""
    price_completion: Annotated[float, Field(ge=0)] = 0.0
    """Dollars per million tokens of answers."""
    max_tokens_total: PositiveInt | None = None
    """Tokens that a session may spend on prompts and answers; then it counts as a failure."""
    max_dollars: PositiveFloat | None = None
    """Dollars that a session may spend, by the prices above; then it counts as a failure."""


class VllmPolicyConfig(ModelPolicySection):
    """Runs a language model in this process; needs `pip install 'kernevo[vllm]'`."""

    type: Literal["vllm"]
    """Which policy proposes."""
    model: Annotated[str, Field(min_length=1)]
    """Folder of the model: config.json, weights, tokenizer."""
    adapter: str | None = None
    """Folder of a LoRA adapter to use."""
    max_model_len: Annotated[int, Field(ge=512)] | None = None
    """Tokens of prompt and answer together; the model's own limit when left out."""
    dtype: Literal["auto", "float16", "bfloat16", "float32"] = "auto"
    """Number format of the weights."""
    gpu_memory: Annotated[float, Field(gt=0, lt=1)] = 0.3
    """Share of the GPU's memory for weights and cache, while the model is awake."""
    sleep: bool = True
    """Move the weights off the GPU between questions, so that kernels have its memory."""
    send_seed: bool | None = None
    """Seed every question; on GPUs only when left out: vLLM for CPUs dies of seeded questions with long prompts."""
    eager: bool = True
    """Do without CUDA graphs, which take memory and half a minute."""


class TransformersPolicyConfig(ModelPolicySection):
    """Runs a language model in this process with `transformers`; needs `pip install 'kernevo[transformers]'`."""

    type: Literal["transformers"]
    """Which policy proposes."""
    model: Annotated[str, Field(min_length=1)]
    """Folder of the model: config.json, weights, tokenizer with a chat template."""
    adapter: str | None = None
    """Folder of a LoRA adapter to use."""
    top_k: PositiveInt | None = None
    """Tokens that are drawn from at most; all of them when left out."""
    max_model_len: Annotated[int, Field(ge=512)] | None = None
    """Tokens of prompt and answer together; the model's own limit when left out."""
    dtype: Literal["auto", "float16", "bfloat16", "float32"] = "auto"
    """Number format of the weights; `auto` is their own on a GPU and float32 on a CPU."""
    device: Annotated[str, Field(pattern=r"^(auto|cpu|cuda(:\d+)?)$")] = "auto"
    """`cpu`, `cuda`, `cuda:1` …; `auto` is the first visible GPU where there is one."""
    sleep: bool = True
    """Move the weights to the CPU between questions, so that kernels have the GPU's memory."""
    batch: Annotated[int, Field(ge=1, le=4096)] = 64
    """Answers written at once at most; halved where the GPU's memory runs out."""


class ReplayPolicyConfig(Section):
    """Gives the answers that another run recorded, each once, where the same parent is asked about. Needs no model."""

    type: Literal["replay"]
    """Which policy proposes."""
    weight: PositiveFloat = 1.0
    """Share of the requests in a list of policies, relative to the others' weights."""
    run: Annotated[str, Field(min_length=1)]
    """Folder of the recorded run or a trajectories.jsonl of one; a seed and a search like its own ask most alike."""


AnyPolicyConfig = (
    RulePolicyConfig | OpenAIPolicyConfig | VllmPolicyConfig | TransformersPolicyConfig | ReplayPolicyConfig
)
OnePolicy = Annotated[AnyPolicyConfig, Field(discriminator="type")]


def _policy_form(value: Any) -> str:
    return "list" if isinstance(value, list | tuple) else "one"


PolicyConfig = Annotated[
    Annotated[OnePolicy, Tag("one")] | Annotated[tuple[OnePolicy, ...], Field(strict=False), Tag("list")],
    Discriminator(_policy_form),
]


class RewardConfig(Section):
    """How a judged child is rewarded in trajectories and exports."""

    type: Literal["shaped", "profile", "weighted", "simple"] = "shaped"
    """`shaped` also grades failures; `profile` counts speedup and coverage; `weighted` adds code quality."""
    scale: PositiveFloat = 1.0
    """Factor on the `profile` reward: 1 is the published formula, 0.5 the released code's."""


def _typed(first: str) -> BeforeValidator:
    """A section that names no type is the `first` of its union."""
    return BeforeValidator(
        lambda value: {"type": first, **value} if isinstance(value, dict) and "type" not in value else value
    )


class CampaignConfig(Section):
    """One campaign: one task, one evaluator, one policy, one budget."""

    name: str | None = None
    """Folder under `runs_dir`; made from the config's file name when left out."""
    runs_dir: str = "runs"
    """Folder that holds the run folders."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Every random choice of the search follows from it."""
    task: str = ""
    """A shipped task's name, the path of a task folder, or a problem such as `kernelbench:PATH/level1/24`."""
    first_kernel: str | None = None
    """File with a first correct kernel, for a task without one or in place of its own; `inductor`: torch.compile's."""
    suite: SuiteConfig | None = None
    """Many problems in place of one task."""
    split: Literal["train", "held_out"] = "train"
    """`held_out`: turns of this run measure a policy and are no training data; also said by a task's `split`."""
    evaluator: Annotated[EvaluatorConfig, _typed("cpu")] = CpuEvaluatorConfig()
    """Who says whether a kernel is right and how fast it is."""
    policy: PolicyConfig = RulePolicyConfig()
    """Who proposes rewrites: one policy, or a list of policies that share the requests by `weight`."""
    search: SearchConfig = SearchConfig()
    """How parents, survivors and tuning trials are chosen."""
    budget: BudgetConfig
    """When the campaign ends."""
    seeds: SeedsConfig | None = None
    """Kernels of other runs to start from; left out, the task's own seed is the only one."""
    library: Annotated[str, Field(min_length=1)] | None = None
    """File of a library that gets the run's best kernels at its end; policies' `search_kernels` finds what it holds."""
    finalists: FinalistsConfig = FinalistsConfig()
    """The best are timed again before they are called elites."""
    reward: RewardConfig = RewardConfig()
    """What a child earns in trajectories and exports."""
    learning: LearningConfig | None = None
    """Training of the policy between generations; left out, it stays as it is."""
    monitors: tuple[Literal["console", "jsonl", "tensorboard", "trackio", "wandb"], ...] = ("console", "jsonl")
    """Where progress goes: the console (stderr), `metrics.jsonl`, and curves, which need an extra each."""
    backend: Annotated[BackendConfig, _typed("local")] = LocalBackendConfig()
    """Where candidates are judged."""
    elites: PositiveInt = 5
    """Distinct structures written to `elites/` at the end."""

    @property
    def policies(self) -> tuple[AnyPolicyConfig, ...]:
        """The policies as a list, whether one or several are given."""
        return self.policy if isinstance(self.policy, tuple) else (self.policy,)
