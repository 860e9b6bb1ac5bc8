"""LoRA through PEFT: attach, read and write the factors by module name."""

import warnings

import torch
from peft import LoraConfig, get_peft_model
from peft.tuners.lora import LoraLayer

from reference.allocation import concatenate

CURRENT = "default"
ACCUMULATED = "accumulated"


def attach(backbone, target_modules, rank, alpha, dropout=0.0, past=()):
    """Attach one trainable PEFT adapter, Kaiming A and zero B, to the backbone itself (no copy).

    past: O-LoRA's completed factors, one dict module -> (A*, B*) per task. They become one frozen
    adapter of rank (t - 1) r at the same scale rho. It is part of the represented matrix, so it
    gets no dropout. Source: eq. app-lora, app-olora-forward.
    """
    config = LoraConfig(
        r=rank, lora_alpha=alpha, lora_dropout=dropout, target_modules=list(target_modules)
    )
    with warnings.catch_warnings():
        # PEFT 0.21 still reads an attribute that transformers 5.23 renamed.
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing`", FutureWarning)
        model = get_peft_model(backbone, config)
    if past:
        accumulated = LoraConfig(
            r=len(past) * rank,
            lora_alpha=len(past) * alpha,
            lora_dropout=0.0,
            target_modules=list(target_modules),
        )
        model.add_adapter(ACCUMULATED, accumulated)
        write(
            model,
            {module: concatenate([task[module] for task in past]) for module in past[0]},
            ACCUMULATED,
        )
        model.base_model.set_adapter([CURRENT, ACCUMULATED])
        for A, B in factors(model, ACCUMULATED).values():
            A.requires_grad_(False)
            B.requires_grad_(False)
    return model


def adapted(model):
    """The adapted linear modules, by their names in the backbone."""
    modules = model.base_model.model.named_modules()
    return {name: module for name, module in modules if isinstance(module, LoraLayer)}


def factors(model, adapter=CURRENT):
    """The live parameters: module -> (A [r, d_in], B [d_out, r])."""
    return {
        name: (module.lora_A[adapter].weight, module.lora_B[adapter].weight)
        for name, module in adapted(model).items()
    }


def coordinates(model):
    """The trainable tensors as <module>.A and <module>.B, the names that weight anchors use."""
    named = {}
    for module, (A, B) in factors(model).items():
        named[f"{module}.A"] = A
        named[f"{module}.B"] = B
    return named


@torch.no_grad()
def write(model, values, adapter=CURRENT):
    """Copy values, module -> (A, B), into the adapter's factors."""
    live = factors(model, adapter)
    assert live.keys() == values.keys()
    for module, (A, B) in live.items():
        A.copy_(values[module][0])
        B.copy_(values[module][1])


def copied(values):
    """Detached copies of a dict of tensors, or of pairs of tensors."""
    return {
        name: tuple(part.detach().clone() for part in value)
        if isinstance(value, tuple)
        else value.detach().clone()
        for name, value in values.items()
    }
