import torch
from my_holdfast.light import Light

from holdfast import RunConfig, Trajectory, load_backbone
from holdfast.allocation import Opening
from holdfast.learning.learner import Learner

CONFIG = {
    "method": "light",
    "stream": {"tasks": 2, "items_per_task": 4},
    "template": {"append_eos": True},
    "lora": {"rank": 4, "alpha": 8},
    "optim": {"lr": 2.0e-3, "epochs": 5},
    "evaluation": {"max_new_tokens": 16},
}


def test_the_penalty_is_the_formula():
    config = RunConfig.of({**CONFIG, "plugins": {"light": {"strength": 0.5}}})
    workspace = Learner(config, load_backbone(config.backbone)).workspace
    rule = Light(Light.Config(strength=0.5))
    state = rule.begin({}, workspace, Opening(task=1, seed=1))
    every = sum(layer.lora_A.square().sum() for layer in workspace.layers.values())  # B is 0
    torch.testing.assert_close(rule.penalty(state, workspace), 0.25 * every)


def test_a_stronger_penalty_makes_smaller_updates(tmp_path):
    sizes = []
    for strength in (0.0, 0.1):
        settings = {
            **CONFIG,
            "plugins": {"light": {"strength": strength}},
            "keep": {"factors": True},
        }
        place = tmp_path / str(strength)
        Trajectory(RunConfig.of(settings), place).advance(1)
        from safetensors.torch import load_file

        factors = load_file(place / "factors" / "task-0001.safetensors")
        maps = {name.rpartition(".")[0] for name in factors}
        updates = [factors[f"{name}.lora_B"] @ factors[f"{name}.lora_A"] for name in maps]
        sizes.append(sum(float(update.norm()) for update in updates))
    assert sizes[1] < 0.9 * sizes[0]
