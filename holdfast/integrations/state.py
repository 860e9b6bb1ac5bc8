"""Save and load the state of an :class:`Anchored` as one file: tensors and a JSON header."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from holdfast.core.errors import HoldfastError
from holdfast.core.file_checks import regular
from holdfast.core.files import atomic_write
from holdfast.integrations.fingerprint import check_base, fingerprint_of
from holdfast.integrations.past import remember
from holdfast.integrations.task import Task

if TYPE_CHECKING:
    from holdfast.integrations.anchored import Anchored

FILE = "holdfast.safetensors"
VERSION = 1


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
    """Restore an Anchored of the same method on the same model; the inverse of :func:`pack`.

    Raises HoldfastError for another version, another method, another base model (older states do
    not record it), or tensors of another model.
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
    with atomic_write(directory / FILE, in_folder=True, parents=True) as temporary:
        save_file(tensors, temporary, metadata={"holdfast": json.dumps(header)})


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
    return {
        **names,
        **settings,
        f"allocation.{rule}": anchored.allocation.config.model_dump(mode="json"),
        "sampling": anchored.sampling.model_dump(mode="json"),
        "curvature": anchored.curvature.model_dump(mode="json"),
        "seed": anchored.seed,
        "batch_size": anchored.batch_size,
        "begin_with": anchored.begin_with,
        "scale": sorted({layer.scale for layer in anchored.workspace.layers.values()}),
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
        differing = {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}
        made = ", ".join(f"{key} = {before}" for key, (before, _) in differing.items())
        is_now = ", ".join(str(after) for _, after in differing.values())
        raise HoldfastError(
            f"the state was made with {made}, and now it is {is_now}; make the same Anchored as "
            "then"
        )
