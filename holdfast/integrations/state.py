"""Save and load the state of an :class:`Anchored` as one file: tensors and a JSON header."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from peft.tuners.tuners_utils import BaseTunerLayer
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from holdfast.core.errors import HoldfastError
from holdfast.core.file_checks import regular
from holdfast.integrations.past import remember
from holdfast.integrations.task import Task
from holdfast.model.tensors import save_tensors

if TYPE_CHECKING:
    from holdfast.integrations.anchored import Anchored

FILE = "holdfast.safetensors"
VERSION = 1
_NAMED = 4  # settings that an error names at most
_PARAMETERS, _NUMBERS = 8, 8  # parameters read at most; numbers of each
_PLAIN = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
# The relative rounding of bfloat16, and the smallest number of float16.
_ROUNDED, _SMALL = 2**-8, 2**-24


def pack(anchored: Anchored) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The header and the tensors: factors, merged matrices, states of the method, an open task."""
    header: dict[str, Any] = {
        "version": VERSION,
        "method": _method(anchored),
        "completed": anchored.completed,
        "past_items": anchored.past_items,
        "base": fingerprint_of(anchored.reader.base),
    }
    tensors = {f"factors {name}": tensor for name, tensor in anchored.workspace.copied().items()}
    if anchored.completed and anchored.allocation.after_task != "keep":
        tensors |= {f"dense {name}": tensor for name, tensor in anchored.workspace.dense().items()}
    for name, anchor in anchored.anchors.items():
        packed = anchor.pack(anchored.states[name])
        tensors |= {f"anchor {name} {key}": tensor for key, tensor in packed.items()}
    tensors |= {f"rule {name}": tensor for name, tensor in anchored.allocation_state.items()}
    if anchored.task is not None:
        task = anchored.task
        header["task"] = {
            "fingerprint": task.fingerprint,
            "drawn": task.drawn,
            "read": task.read,
        }
        tensors |= {f"start {name}": tensor for name, tensor in task.start.items()}
        tensors["replay"] = torch.tensor([token for ids in task.replay for token in ids])
        tensors["replay lengths"] = torch.tensor([len(ids) for ids in task.replay])
    return header, {name: tensor.detach().cpu().clone() for name, tensor in tensors.items()}


def unpack(anchored: Anchored, header: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """The inverse of :func:`pack`, on the same model.

    Raises HoldfastError for another version, method or base model (older states do not record it),
    or tensors of another model.
    """
    if header.get("version") != VERSION:
        raise HoldfastError(
            f"the state has version {header.get('version')}, and this holdfast reads {VERSION}"
        )
    _check_method(header["method"], _method(anchored))
    check_base(anchored.reader.base, header.get("base", {}))
    device = anchored.reader.device
    parts: dict[str, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        part, _, name = key.partition(" ")
        parts.setdefault(part, {})[name] = tensor.to(device)
    dense = {name: tensor.cpu() for name, tensor in parts.get("dense", {}).items()}
    if anchored.workspace.folded and not dense:
        raise HoldfastError(
            "the model's matrices have been merged into since this state was saved; load it into "
            "the model as it came"
        )
    anchored.workspace.check_active()
    anchored.workspace.check(parts["factors"])
    for name in sorted(parts["factors"].keys() - anchored.workspace.parameters().keys()):
        raise HoldfastError(
            f"the state has {name}, which the model's adapter does not; adapt the same maps as then"
        )
    anchored.workspace.set_dense(dense)
    anchored.workspace.write(parts["factors"])
    for name, anchor in anchored.anchors.items():
        packed = {
            key.removeprefix(f"{name} "): tensor
            for key, tensor in parts.get("anchor", {}).items()
            if key.startswith(f"{name} ")
        }
        try:
            anchored.states[name] = anchor.unpack(packed)
        except KeyError as error:
            raise HoldfastError(f"the state of {name} is damaged: {error.args[0]}") from None
    anchored.allocation_state = anchored.allocation.unpack(parts.get("rule", {}))
    anchored.completed, anchored.past_items = header["completed"], header["past_items"]
    anchored.task = None
    if "task" in header:
        lengths = parts["replay"].pop("lengths").tolist()
        sequences = parts["replay"][""].split(lengths) if lengths else []
        replay = [ids.tolist() for ids in sequences]
        anchored.task = Task(
            anchored,
            anchored.completed + 1,
            parts["start"],
            replay,
            header["task"]["fingerprint"],
            header["task"]["drawn"],
            header["task"].get("read", 0),
        )
        anchored.task.stepped = True  # assumed: the state does not record it
    if anchored.completed or anchored.task is not None:
        anchored.workspace.given_start_is_used()
    remember(anchored)


def to_device(anchored: Anchored) -> None:
    """Move the state to the model's device, which a trainer may have changed."""
    device = anchored.reader.device
    for name, anchor in anchored.anchors.items():
        packed = anchor.pack(anchored.states[name])
        moved = {key: tensor.to(device) for key, tensor in packed.items()}
        anchored.states[name] = anchor.unpack(moved)
    rule = anchored.allocation_state
    anchored.allocation_state = {name: tensor.to(device) for name, tensor in rule.items()}
    if anchored.task is not None:
        start = anchored.task.start
        anchored.task.start = {name: tensor.to(device) for name, tensor in start.items()}


def save(anchored: Anchored, directory: Path) -> None:
    """Write the state to ``directory``/holdfast.safetensors, whole or not at all.

    Raises HoldfastError when it cannot be written.
    """
    header, tensors = pack(anchored)
    save_tensors(directory / FILE, tensors, {"holdfast": json.dumps(header)}, parents=True)


def load(anchored: Anchored, directory: Path) -> None:
    """Read what :func:`save` wrote; HoldfastError if it is missing, damaged or something else."""
    path = directory / FILE
    try:
        with safe_open(regular(path), framework="pt") as file:
            header = json.loads((file.metadata() or {})["holdfast"])
            # Cloned: at a file's unaligned addresses products may round differently.
            names = file.keys()
            tensors = {name: file.get_tensor(name).clone() for name in names}
    except OSError as error:
        raise HoldfastError(f"{path}: cannot be read ({error.strerror or error})") from None
    except (SafetensorError, KeyError, ValueError) as error:
        raise HoldfastError(f"{path}: is no state of anchors ({error})") from None
    unpack(anchored, header, tensors)


def _method(anchored: Anchored) -> dict[str, Any]:
    """The settings to which a state is bound."""
    settings = {
        f"anchors.{name}": anchor.config.model_dump(mode="json")
        for name, anchor in anchored.anchors.items()
    }
    rule = anchored.allocation_name
    names = {"anchors": list(anchored.anchors), "allocation": rule}
    scales = {name: layer.scale for name, layer in anchored.workspace.layers.items()}
    distinct = sorted({*scales.values()})
    return {
        **names,
        **settings,
        f"allocation.{rule}": anchored.allocation.config.model_dump(mode="json"),
        "sampling": anchored.sampling.model_dump(mode="json"),
        "curvature": anchored.curvature.model_dump(mode="json"),
        "seed": anchored.seed,
        "batch_size": anchored.batch_size,
        "begin_with": anchored.begin_with,
        "scale": distinct,
        **({"scale of": scales} if len(distinct) > 1 else {}),
    }


def _check_method(then: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise HoldfastError for the first entry that differs, naming its settings that differ."""
    for name, value in then.items():
        ours = now.get(name)
        if value == ours:
            continue
        pairs = {name: (value, ours)}
        if isinstance(value, Mapping) and isinstance(ours, Mapping):
            keys = {**value, **ours}
            pairs = {f"{name}.{key}": (value.get(key), ours.get(key)) for key in keys}
        different = [(key, pair) for key, pair in pairs.items() if pair[0] != pair[1]]
        differing = dict(different[:_NAMED])
        made = ", ".join(f"{key} = {before}" for key, (before, _) in differing.items())
        is_now = ", ".join(str(after) for _, after in differing.values())
        raise HoldfastError(
            f"the state was made with {made}, and now it is {is_now}; make the same Anchored as "
            "then"
        )


def fingerprint_of(base: Any) -> dict[str, dict[str, Any]]:
    """Numbers at fixed places of a base model, by which a state recognises it.

    They are of parameters that neither training nor a merge changes. Returns, by a parameter's
    name, places: each [row, column] of the matrix [its first dimension, all others], in the first
    half of the rows, since tokens are added at the end; numbers: the values there. Empty if all
    such parameters are quantized.
    """
    kept = _kept(base)
    if not kept:
        return {}
    names = list(kept)
    count = min(len(names), _PARAMETERS - 1)
    largest = max(names, key=lambda name: kept[name].numel())  # usually the embedding
    chosen = dict.fromkeys([largest, *(names[i * len(names) // count] for i in range(count))])
    return {name: _read(kept[name], _places(kept[name])) for name in chosen}


def check_base(base: Any, made_with: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise HoldfastError if ``base`` is not the model of which the fingerprint was taken.

    It may have another precision and more tokens; parameters that it does not have, or has
    quantized, are skipped.
    """
    kept = _kept(base)
    for name, read in made_with.items():
        if name in kept and not _is_same(kept[name], read):
            raise HoldfastError(
                f"the state was made with another base model, whose {name} has other numbers; "
                "load it into the model it was made with"
            )


def _is_same(parameter: Tensor, read: Mapping[str, Any]) -> bool:
    places = read["places"]
    width = parameter[0].numel()
    if any(row >= len(parameter) or column >= width for row, column in places):
        return False
    now, then = (
        torch.tensor(numbers, dtype=torch.float64)
        for numbers in (_read(parameter, places)["numbers"], read["numbers"])
    )
    return torch.allclose(now, then, rtol=_ROUNDED, atol=_SMALL, equal_nan=True)


def _kept(base: Any) -> dict[str, Tensor]:
    """The plain parameters outside adapted layers, by name; a tied one under each of its names."""
    adapted = {
        id(parameter)
        for module in filter(lambda module: isinstance(module, BaseTunerLayer), base.modules())
        for parameter in module.parameters()
    }
    return {
        name: parameter.detach()
        for name, parameter in base.named_parameters(remove_duplicate=False)
        if id(parameter) not in adapted and _is_plain(parameter)
    }


def _is_plain(parameter: Tensor) -> bool:
    """Whether a parameter is not quantized, not on the meta device and not empty."""
    plain = type(parameter) is nn.Parameter and parameter.dtype in _PLAIN
    return plain and not parameter.is_meta and parameter.dim() > 0 and parameter.numel() > 0


def _places(parameter: Tensor) -> list[list[int]]:
    rows, width = len(parameter), parameter[0].numel()
    odd = [2 * number + 1 for number in range(_NUMBERS)]
    return [[k * rows // (4 * _NUMBERS), k * width // (2 * _NUMBERS)] for k in odd]


def _read(parameter: Tensor, places: Sequence[Sequence[int]]) -> dict[str, Any]:
    rows = parameter[[row for row, _ in places]].reshape(len(places), -1).cpu()
    numbers = [float(rows[place, column]) for place, (_, column) in enumerate(places)]
    return {"places": [list(place) for place in places], "numbers": numbers}
