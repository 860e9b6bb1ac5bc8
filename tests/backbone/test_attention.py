"""backbone.attention: who computes it, the same up to rounding, and what is not available."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers.models.llama.modeling_llama import LlamaPreTrainedModel

from holdfast.backbone import load
from holdfast.backbone.adapters.workspace import Adapters
from holdfast.backbone.decoder import attention
from holdfast.backbone.load import check_available, load_backbone
from holdfast.backbone.model import Backbone
from holdfast.backbone.sequences import collate
from holdfast.core.errors import HoldfastError
from tests.exports.exported import family, saved

KINDS = ("auto", "sdpa", "eager")


def backbone_with(base: Path, kind: str) -> tuple[Backbone, str | None]:
    settings = Backbone.Config(name=str(base), attention=kind, device="cpu", precision="float64")
    backbone = load_backbone(settings)
    reason = backbone.adapt(Adapters.Config(rank=2, targets="all-linear"), attention=kind)
    with torch.no_grad():
        backbone.adapters.parameters.normal_(std=0.2, generator=torch.Generator().manual_seed(1))
    return backbone, reason


@pytest.mark.parametrize("name", ["qwen3", "gpt2"])
def test_all_kinds_agree_up_to_rounding(name: str, tmp_path: Path) -> None:
    base = saved(tmp_path, family(name))
    found = []
    for kind in KINDS:
        backbone, _ = backbone_with(base, kind)
        batch = collate([[5, 9, 2, 30, 7], [1, 40, 3]], torch.device("cpu"))
        gradient = torch.zeros_like(backbone.adapters.gradient)
        with backbone.learning():
            passed = backbone.forward_pass(batch)
            passed.backward((passed.states[0][:, :3].sum(), gradient))
        found.append((passed.states[0].detach(), gradient))
    for other in found[1:]:
        # Transformers takes norms and softmaxes in float32, whatever the model is in.
        torch.testing.assert_close(other, found[0], rtol=1e-4, atol=1e-5)
    assert found[0][1].abs().max() > 0.1


def test_the_decoder_computes_what_it_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """auto takes plain products for short sequences on a processor, sdpa does not."""
    base, short = saved(tmp_path, family("qwen3")), []
    plain = attention._written_out

    def counted(*args: Any) -> Any:
        short.append(kind)
        return plain(*args)

    monkeypatch.setattr(attention, "_written_out", counted)
    for kind in KINDS:
        backbone, reason = backbone_with(base, kind)
        assert backbone.model.config._attn_implementation == (
            "eager" if kind == "eager" else "sdpa"
        )
        assert (reason is None) == (backbone.decoder is not None) == (kind != "eager")
    assert set(short) == {"auto"}
    assert reason == "backbone.attention = eager, which is theirs"


def refused(**settings: Any) -> str:
    with pytest.raises(HoldfastError) as caught:
        check_available(Backbone.Config(attention="flash_attention_2", **settings))
    return str(caught.value)


def test_what_is_not_available_is_said_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "backbone.attention = flash_attention_2: "
    assert refused(device="cpu") == f"{said}runs on a GPU only; leave it out, or use sdpa"
    monkeypatch.setattr(load, "device_of", lambda _: torch.device("cuda", 0))
    assert find_spec("flash_attn") is None
    assert "pip install flash-attn, or use sdpa" in refused()
    monkeypatch.setattr(load, "find_spec", lambda _: "found")
    assert refused(precision="float32").endswith("set backbone.precision=bfloat16")
    check_available(Backbone.Config(attention="flash_attention_2"))
    monkeypatch.undo()
    base = saved(tmp_path, family("llama untied"))
    monkeypatch.setattr(LlamaPreTrainedModel, "_supports_sdpa", False)
    with pytest.raises(HoldfastError, match=r"attention = sdpa: .* none of that kind .*; use auto"):
        backbone_with(base, "sdpa")
