"""A state goes into the model that it was made with, in whatever precision that is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from torch import nn

from holdfast.core.errors import HoldfastError, NoSpaceError
from holdfast.integrations import Anchored, state
from holdfast.integrations.state import check_base, fingerprint_of
from holdfast.model import tensors
from tests.integrations.test_hf_trainer import (
    assert_same,
    method,
    model_of,
    outcome,
    trainer_of,
)
from tests.integrations.test_unusual import anchored_model, learn, plain_model
from tests.tiny import tiny_llama

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
ANOTHER = "made with another base model, .*load it into the model it was made with"


def saved(place: Path, model: Any = None, rule: str = "shared") -> Anchored:
    """After one task."""
    anchored = anchored_model("si", rule=rule, model=model)
    learn(anchored, 1)
    anchored.end()
    anchored.save(place)
    return anchored


def test_a_full_disk_is_one_line_and_others_may_read_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "m").mkdir(mode=0o755)
    anchored = saved(tmp_path / "m")
    (file,) = (tmp_path / "m").iterdir()
    assert file.stat().st_mode & 0o777 == 0o644

    def full(*_: object, **__: object) -> None:
        raise SafetensorError("Error while serializing: I/O error: No space left on device")

    monkeypatch.setattr(tensors, "save_file", full)
    with pytest.raises(NoSpaceError, match="cannot be written"):
        anchored.save(tmp_path / "m")


@pytest.mark.parametrize("rule", ["shared", "merge"])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_base_of_the_same_shape_is_another_model(seed: int, rule: str, tmp_path: Path) -> None:
    """Also one that differs in its norms alone."""
    saved(tmp_path, rule=rule)
    base = tiny_llama(seed=seed)
    with torch.no_grad():
        base.model.norm.weight.mul_(1.02)
    model = plain_model(base)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(HoldfastError, match=ANOTHER if seed else r"whose model\.norm\.weight"):
        anchored_model("si", rule=rule, model=model).load(tmp_path)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("rule", ["shared", "merge"])
@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_the_model_in_another_precision_is_the_same(
    rule: str, half: torch.dtype, tmp_path: Path
) -> None:
    saved(tmp_path / "float32", rule=rule)
    saved(tmp_path / "half", plain_model(tiny_llama().to(half)), rule)
    again = anchored_model("si", rule=rule, model=plain_model(tiny_llama().to(half)))
    again.load(tmp_path / "float32")
    assert again.completed == 1
    whole = anchored_model("si", rule=rule)
    whole.load(tmp_path / "half")
    assert whole.completed == 1


def test_a_model_with_more_tokens_is_the_same(tmp_path: Path) -> None:
    """Their rows are drawn wherever they are added."""

    def with_more(tokens: int, seed: int) -> Any:
        base = tiny_llama()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            base.resize_token_embeddings(257 + tokens, mean_resizing=False)
        return plain_model(base)

    saved(tmp_path, with_more(9, seed=1))
    for tokens, seed in ((9, 2), (40, 3), (0, 4)):
        again = anchored_model("si", model=with_more(tokens, seed))
        again.load(tmp_path)
        assert again.completed == 1


def test_a_state_of_before_loads_as_it_did() -> None:
    header, tensors = state.pack(anchored_model("si"))
    assert header.pop("base")
    state.unpack(anchored_model("si", model=plain_model(tiny_llama(seed=1))), header, tensors)


def test_what_is_trained_merged_or_quantized_is_not_read() -> None:
    """An embedding in whole numbers, say; a model that holds nothing else passes."""
    base = plain_model().get_base_model()
    names = set(fingerprint_of(base))
    assert {"model.embed_tokens.weight", "model.norm.weight"} <= names
    assert not any("_proj" in name for name in names)
    places = fingerprint_of(base)["model.embed_tokens.weight"]["places"]
    assert all(row < 257 // 2 and column < 16 for row, column in places)
    assert len({column for _, column in places}) == len({row for row, _ in places}) == 8
    made_with = fingerprint_of(base)
    whole = base.model.embed_tokens.weight.detach().to(torch.int8)
    base.model.embed_tokens.weight = nn.Parameter(whole, requires_grad=False)
    base.lm_head.weight = base.model.embed_tokens.weight
    assert "model.embed_tokens.weight" not in fingerprint_of(base)
    check_base(base, made_with)
    for name in set(fingerprint_of(base)):
        base.get_parameter(name).data = base.get_parameter(name).detach().to(torch.int8)
    assert fingerprint_of(base) == {}
    check_base(base, made_with)


def test_a_head_that_is_tied_is_the_embedding() -> None:
    """A model that is loaded with its own head has the same numbers under another name."""
    tied = plain_model().get_base_model()
    untied = tiny_llama()
    untied.lm_head.weight = nn.Parameter(untied.lm_head.weight.detach().clone())
    untied = plain_model(untied).get_base_model()
    check_base(untied, fingerprint_of(tied))
    check_base(tied, fingerprint_of(untied))
    with torch.no_grad():
        untied.lm_head.weight.add_(1)
    with pytest.raises(HoldfastError, match=r"whose lm_head\.weight"):
        check_base(untied, fingerprint_of(tied))


def test_the_scales_of_other_maps_are_other_settings(tmp_path: Path) -> None:
    """The same factors would be another update; of many settings four are named."""
    saved(tmp_path, plain_model(alpha_pattern={"q_proj": 16}))
    anchored_model("si", model=plain_model(alpha_pattern={"q_proj": 16})).load(tmp_path)
    swapped = anchored_model("si", model=plain_model(alpha_pattern={"v_proj": 16}))
    text = r"with scale of\.model\.layers\.0\.self_attn\.q_proj = 8\.0, .* and now it is 2\.0, 8\.0"
    with pytest.raises(HoldfastError, match=text):
        swapped.load(tmp_path)
    three = {"target_modules": ["q_proj", "k_proj", "v_proj"]}
    saved(tmp_path, plain_model(alpha_pattern={"q_proj": 16}, **three))
    others = plain_model(alpha_pattern={"k_proj": 16, "v_proj": 16}, **three)
    with pytest.raises(HoldfastError) as error:
        anchored_model("si", model=others).load(tmp_path)
    assert str(error.value).count(" = ") == 4


@pytest.mark.parametrize("rule", ["shared", "merge"])
def test_a_state_of_more_maps_is_not_read_in_part(rule: str, tmp_path: Path) -> None:
    """What the others have learned would be lost."""
    saved(tmp_path, plain_model(target_modules=["q_proj", "v_proj"]), rule)
    fewer = anchored_model("si", rule=rule, model=plain_model(target_modules=["q_proj"]))
    with pytest.raises(HoldfastError, match=r"state has .*v_proj\.lora_A, which .* the same maps"):
        fewer.load(tmp_path)


def test_factors_in_half_precision_are_resumed_as_such(tmp_path: Path) -> None:
    """PEFT would load a checkpoint's factors in float32, and the steps would differ."""
    trainers = []
    for resumed in (None, str(tmp_path / "checkpoint-1")):
        trainer = trainer_of(
            model_of().to(torch.bfloat16),
            tmp_path,
            method("si"),
            1,
            save_strategy="steps",
            save_steps=1,
        )
        trainer.train(resume_from_checkpoint=resumed)
        trainers.append(trainer)
    straight, again = map(outcome, trainers)
    assert_same(again, straight)
