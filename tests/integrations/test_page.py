"""The page on somebody's own loop, and the method on one page, run as they stand."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers

from holdfast.integrations import Anchored
from holdfast.integrations import anchored as anchored_module
from tests.documentation import ROOT, blocks_of
from tests.integrations.test_hf_trainer import tokenizer_of
from tests.tiny import exact_backbone, short_sequences, tiny_llama

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
PAGE = "docs/how-to/your-own-loop.md"


def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tiny model and its tokenizer in place of what the hub has."""
    model: Any = transformers.AutoModelForCausalLM
    tokenizer: Any = transformers.AutoTokenizer
    monkeypatch.setattr(model, "from_pretrained", lambda *_, **__: tiny_llama(layers=1))
    monkeypatch.setattr(tokenizer, "from_pretrained", lambda *_, **__: tokenizer_of())


def test_the_page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stand_in(monkeypatch)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    names: dict[str, Any] = {}
    blocks = [block.text for block in blocks_of(PAGE) if block.language == "python"]
    assert len(blocks) == 4
    for block in blocks[:2]:
        exec(block, names)  # noqa: S102
    bare = names["anchored"]
    assert bare.completed == 2 and bare.terms["kfac"] > 0 and bare.terms["replay"] >= 0
    exec(blocks[2], names)  # noqa: S102
    assert names["method"].completed == 2
    exec(blocks[3], names)  # noqa: S102
    assert bare.completed == 3


def loop() -> Any:
    spec = importlib.util.spec_from_file_location("loop", ROOT / "examples" / "loop.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_method_on_one_page_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in(monkeypatch)
    method = loop()
    monkeypatch.setattr(method, "EPOCHS", 1)
    method.main("anything")
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert re.fullmatch(r"after task 3: . of 2  . of 2  . of 2", lines[2])
    assert len((ROOT / "examples" / "loop.py").read_text().splitlines()) <= 200


def test_the_method_on_one_page_is_the_method(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tasks in float64 by the page and by Anchored, on the same samples: the same factors."""
    method = loop()
    monkeypatch.setattr(method, "EPOCHS", 2)
    monkeypatch.setattr(method, "BATCH", 8)  # whole tasks, so that the order is no matter

    def model_of() -> Any:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            config = method.LoraConfig(r=2, lora_alpha=4, target_modules=["q_proj", "down_proj"])
            return method.get_peft_model(exact_backbone().model, config)

    tasks = [short_sequences(6, seed=number) for number in (1, 2)]
    written = short_sequences(4, seed=9)
    theirs = model_of()
    anchored = Anchored(
        theirs,
        anchors=["si", "sd", "replay"],
        allocation="merge",
        begin_with=[1],
        batch_size=8,
    )
    ours, memory = model_of(), None
    for number, task in enumerate(tasks):
        start = method.trainable(theirs)
        student = method.trainable(ours)
        for (name, factor), other in zip(student.items(), start.values(), strict=True):
            factor.data.copy_(other.data)
            assert name in start
        monkeypatch.setattr(
            anchored_module, "samples_before", lambda _, n: ([] if n == 1 else written, [])
        )
        anchored.begin(task)
        for (_, factor), other in zip(
            method.trainable(ours).items(), anchored.workspace.parameters().values(), strict=True
        ):
            factor.data.copy_(other.data)
        memory = method.learn(ours, task, written if number else [], memory)
        factors = list(anchored.workspace.parameters().values())
        optimizer = torch.optim.AdamW(factors, lr=method.RATE, weight_decay=0.01)
        ids, mask = method.pad(task)
        batch = {"input_ids": ids, "attention_mask": mask.long()}
        batch["labels"] = ids.masked_fill(~mask, -100)
        theirs.train()
        for _ in range(2):

            def loss(model: Any, given: Any) -> torch.Tensor:
                logits, targets = method.predictions(model, task)  # noqa: B023
                return F.cross_entropy(logits, targets)

            anchored.loss(batch, loss).backward()
            torch.nn.utils.clip_grad_norm_(factors, method.CLIP)
            with anchored.step():
                optimizer.step()
            optimizer.zero_grad()
        trained = method.trainable(ours).values()
        for mine, factor in zip(trained, anchored.workspace.parameters().values(), strict=True):
            torch.testing.assert_close(mine, factor, rtol=1e-6, atol=1e-8)
        anchored.end()
        method.merge(ours)
        importance = anchored.states["si"]["importance"].values()
        for mine, expected in zip(memory["importance"].values(), importance, strict=True):
            torch.testing.assert_close(mine, expected, rtol=1e-5, atol=1e-10)
