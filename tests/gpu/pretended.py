"""A GPU that is not there: its tensors compute on the processor and complain as CUDA's do.

What it is for is the order of things, not speed: tensors of two devices in one operation, a copy
that is read before it has arrived, a graph that looks at a value or forgets an operation when it is
replayed, a loop that waits for the device. Kernels are the processor's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.utils import clip_grad
from torch.utils import _pytree as pytree
from torch.utils._device import _device_constructors
from torch.utils._python_dispatch import TorchDispatchMode

DEVICE = torch.device("cuda", 0)
_HOST = torch.device("cpu")
_aten = torch.ops.aten
# Indices may lie on the host, as CUDA has it; so may numbers.
_INDEXING = (_aten.index.Tensor, _aten.index_put_.default, _aten._index_put_impl_.default)
# What they return, or its size, is known once the device has answered.
_ANSWERS = ("_local_scalar_dense", "is_nonzero", "equal", "nonzero", "masked_select", "_unique2")
_JUNK = 7  # what is read of a copy that has not arrived


class Pretended:
    """What the device does.

    waits: how often the host has waited for it so far; recording: the operations of the graph that
    is being recorded, None if there is none.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """As if it had just been switched on."""
        self.waits = 0
        self.recording: list[Callable[[], object]] | None = None
        self._on_their_way: list[tuple[Tensor, Tensor]] = []

    def wait(self, *_: Any) -> None:
        """Until everything is done; copies arrive."""
        if self.recording is not None:
            raise RuntimeError("operation not permitted when stream is capturing")
        self.waits += 1
        for there, value in self._on_their_way:
            there.copy_(value)
        self._on_their_way.clear()

    def to_host(self, value: Tensor, there: Tensor, *, at_once: bool) -> Tensor:
        """Copy to the host, where it arrives with the next wait."""
        self._on_their_way.append((there, value.to(there.dtype, copy=True)))
        if at_once:
            self.wait()
        else:
            there.fill_(_JUNK)
        return there

    def run(self, operation: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """One operation, of whatever tensors."""
        flat, form = pytree.tree_flatten((args, kwargs))
        tensors = [one for one in flat if isinstance(one, Tensor)]
        here = [one for one in tensors if isinstance(one, OnDevice)]
        asked = kwargs.get("device")
        if not here and (asked is None or asked.type != "cuda"):
            return operation(
                *args, **{**kwargs, "pin_memory": False} if "pin_memory" in kwargs else kwargs
            )
        self._hear(operation.overloadpacket.__name__, tensors)
        if operation is _aten.copy_.default:
            return self._copy(*args, **kwargs)
        if operation is _aten._to_copy.default:
            # The way back of a conversion names the device that autograd sees.
            at_once = not kwargs.get("non_blocking", False)
            kwargs = {"dtype": kwargs.get("dtype") or args[0].dtype}
            if not here:
                if at_once:
                    self.wait()
                return OnDevice(self._in_order(args[0]).to(kwargs["dtype"], copy=True))
            flat, form = pytree.tree_flatten((args, kwargs))
        elif any(one.dim() > 0 for one in tensors if not isinstance(one, OnDevice)) and not (
            operation in _INDEXING and isinstance(args[0], OnDevice)
        ):
            raise RuntimeError(f"Expected all tensors to be on the same device: {operation}")
        inner = [
            one.inner
            if isinstance(one, OnDevice)
            else _HOST
            if isinstance(one, torch.device)
            else one
            for one in flat
        ]
        plain_args, plain_kwargs = pytree.tree_unflatten(inner, form)
        plain_kwargs.pop("pin_memory", None)
        work = _MIXED.get(operation, operation)
        out = work(*plain_args, **plain_kwargs)
        if self.recording is not None:
            self.recording.append(lambda: _overwrite(out, work(*plain_args, **plain_kwargs)))
        known = {id(one.inner): one for one in here}

        def wrapped(one: Tensor) -> Tensor:
            return known[id(one)] if id(one) in known else OnDevice(one)

        return pytree.tree_map_only(Tensor, wrapped, out)

    def _in_order(self, value: Tensor) -> Tensor:
        """What the device reads of host memory: a copy that it was told before has arrived."""
        told = [sent for there, sent in self._on_their_way if there.data_ptr() == value.data_ptr()]
        return told[-1] if told else value

    def _hear(self, name: str, tensors: list[Tensor]) -> None:
        refused = name == "cumsum" and tensors[0].is_floating_point()
        if refused and torch.are_deterministic_algorithms_enabled():
            raise RuntimeError("cumsum_cuda_kernel does not have a deterministic implementation")
        if name in _ANSWERS:
            self.wait()

    def _copy(self, there: Tensor, value: Tensor, non_blocking: bool = False) -> Tensor:
        if not isinstance(there, OnDevice):
            assert isinstance(value, OnDevice)
            return self.to_host(value.inner, there, at_once=not non_blocking)
        source = value.inner if isinstance(value, OnDevice) else self._in_order(value)
        if not isinstance(value, OnDevice) and not non_blocking:
            self.wait()
        if self.recording is not None:
            self.recording.append(lambda: there.inner.copy_(source))
        there.inner.copy_(source)
        return there


_gpu = Pretended()


class OnDevice(Tensor):
    """A tensor of the device; ``inner`` is where its numbers are."""

    inner: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, inner: Tensor) -> OnDevice:
        made: OnDevice = Tensor._make_wrapper_subclass(
            cls,
            inner.shape,
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
        )
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(
        cls, operation: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return _gpu.run(operation, args, kwargs or {})

    device = property(lambda self: DEVICE)
    is_cuda = property(lambda self: True)
    is_cpu = property(lambda self: False)

    @property
    def data(self) -> Tensor:
        return self.detach()

    @data.setter
    def data(self, value: OnDevice) -> None:
        self.inner = value.inner
        torch._C.TensorBase.data.__set__(self, value)

    def to(self, *args: Any, **kwargs: Any) -> Tensor:
        if args and isinstance(args[0], Tensor):
            args = (args[0].device, args[0].dtype)
        copy = kwargs.pop("copy", False)
        device, dtype, non_blocking, _ = torch._C._nn._parse_to(*args, **kwargs)
        dtype = dtype or self.dtype
        if device is not None and device.type == "cpu":
            there = torch.empty_like(self.detach().inner, dtype=dtype)
            return _gpu.to_host(self.inner, there, at_once=not non_blocking)
        return self if dtype == self.dtype and not copy else _aten._to_copy(self, dtype=dtype)

    def cpu(self) -> Tensor:
        return self.to(_HOST)

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def numpy(self) -> Any:
        raise TypeError("can't convert cuda:0 device type tensor to numpy")

    def pin_memory(self) -> Any:
        raise RuntimeError("cannot pin: only dense CPU tensors can be pinned")


class _Everywhere(TorchDispatchMode):
    def __torch_dispatch__(
        self, operation: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return _gpu.run(operation, args, kwargs or {})


class _Graph:
    def __init__(self) -> None:
        self.operations: list[Callable[[], object]] = []

    def replay(self) -> None:
        for operation in self.operations:
            operation()


class _Stream:
    def wait_stream(self, _: _Stream) -> None:
        pass


class _Generator(torch.Generator):
    def __new__(cls, device: Any = "cpu") -> _Generator:
        return super().__new__(cls, "cpu")


def _overwrite(out: Any, again: Any) -> None:
    """A graph writes where it wrote when it was recorded."""
    for one, other in zip(pytree.tree_leaves(out), pytree.tree_leaves(again), strict=True):
        if isinstance(one, Tensor) and one.data_ptr() != other.data_ptr():
            one.copy_(other)


def _mixed(left: Tensor, right: Tensor, out_dtype: torch.dtype, **into: Tensor) -> Tensor:
    """A product that is summed and kept in another precision, which only CUDA has."""
    return torch.mm(left.to(out_dtype), right.to(out_dtype), **into)


_MIXED = {_aten.mm.dtype: _mixed, _aten.mm.dtype_out: _mixed}


class _Recording:
    capture_stream = _Stream()

    def __init__(self, graph: _Graph, **_: Any) -> None:
        self._graph = graph

    def __enter__(self) -> None:
        _gpu.recording = self._graph.operations

    def __exit__(self, *_: object) -> None:
        _gpu.recording = None


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pretended]:
    """The device, for one test, and what it did."""
    _gpu.reset()
    _device_constructors()  # torch remembers them, and should remember its own
    torch_tensor, tensor_to, module_to = torch.tensor, Tensor.to, torch.nn.Module.to
    grouped = clip_grad._group_tensors_by_device_and_dtype

    def tensor(data: Any, *, device: Any = None, **options: Any) -> Tensor:
        if device is None or torch.device(device).type != "cuda":
            return torch_tensor(data, device=device, **options)
        return torch_tensor(data, device="cpu", **options).to(DEVICE)

    def numbered(device: Any) -> Any:
        """torch cannot ask which device is meant where it was built for none."""
        return DEVICE if device == "cuda" or device == torch.device("cuda") else device

    def to(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        named = {name: numbered(one) for name, one in kwargs.items()}
        return tensor_to(self, *map(numbered, args), **named)

    def whole_module_to(self: Any, *args: Any, **kwargs: Any) -> Any:
        with monkeypatch.context() as patch:  # so that tied weights stay tied
            patch.setattr(torch.__future__, "get_swap_module_params_on_conversion", lambda: True)
            return module_to(self, *args, **kwargs)

    def grouped_here(lists: list[list[Tensor]]) -> Any:
        groups = grouped(lists)  # by the device that autograd sees
        return {(lists[0][0].device, dtype): found for (_, dtype), found in groups.items()}

    cuda: dict[str, Any] = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "_lazy_init": lambda: None,
        "synchronize": _gpu.wait,
        "CUDAGraph": _Graph,
        "graph": _Recording,
        "current_stream": _Stream,
        "set_stream": lambda _: None,
        "set_device": lambda _: None,
        "stream": lambda _: contextlib.nullcontext(),
        "mem_get_info": lambda *_: (2**33, 2**34),
        "memory_reserved": lambda *_: 0,
        "memory_allocated": lambda *_: 0,
        "max_memory_allocated": lambda *_: 0,
        "is_bf16_supported": lambda **_: True,
    }
    for name, value in cuda.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(clip_grad, "_group_tensors_by_device_and_dtype", grouped_here)
    monkeypatch.setattr(torch, "tensor", tensor)
    monkeypatch.setattr(torch, "Generator", _Generator)
    monkeypatch.setattr(Tensor, "to", to)
    monkeypatch.setattr(Tensor, "pin_memory", lambda self: self.clone())
    monkeypatch.setattr(torch.nn.Module, "to", whole_module_to)
    with _Everywhere():
        yield _gpu
