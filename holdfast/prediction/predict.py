"""What one configuration will take on one device: a pure function of shapes, settings and sizes."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Literal

from holdfast.backbone.adapters.workspace import Adapters
from holdfast.backbone.decoder.decoder import Decoder
from holdfast.learning.config import RunConfig
from holdfast.prediction.disk import Disk
from holdfast.prediction.lengths import Lengths
from holdfast.prediction.memory import Peak, PhaseMemory
from holdfast.prediction.method import Mechanisms
from holdfast.prediction.rates import Rates
from holdfast.prediction.seconds import Times
from holdfast.prediction.shape import Shape

DeviceType = Literal["cpu", "cuda"]

_SCALARS = {"bfloat16": 2, "float32": 4, "float64": 8}
# Bytes that are no tensors: on the host what libraries load when they are first used, measured; of
# a GPU what CUDA itself takes, assumed.
_BESIDE = {"cpu": 45 * 2**20, "cuda": 512 * 2**20}
# What an allocator holds beyond the tensors, as a share of them: measured on the processor (glibc),
# assumed on a GPU.
SLACK = {"cpu": 0.15, "cuda": 0.10}


@dataclass(frozen=True)
class Machine:
    """What a run would use. device: its type; memory: its bytes, None where not known; rates: of
    the device, None where neither measured nor given; libraries: bytes of a process on the host
    that has loaded them and no model.
    """

    device: DeviceType
    memory: int | None = None
    rates: Rates | None = None
    libraries: int = 0

    def beside(self, tensors: int) -> int:
        """Bytes of the device that are taken beside those of tensors."""
        own = self.libraries if self.device == "cpu" else 0
        return own + _BESIDE[self.device] + round(SLACK[self.device] * tensors)


@dataclass(frozen=True)
class Prediction:
    """Memory, time and disk of one configuration; all of it follows from what is given here.

    by_modules: why the model's own modules make its passes, which keep more than is counted; None
    where the decoder is written out.
    """

    config: RunConfig
    shape: Shape
    lengths: Lengths
    machine: Machine
    by_modules: str | None = None

    @staticmethod
    def of(
        config: RunConfig, model: Any, tokenizer: Any | None, lengths: Lengths, machine: Machine
    ) -> Prediction:
        """For a model on the meta device; tokenizer: None where it is not here.

        Raises HoldfastError where the adapters do not fit the model.
        """
        scalar = _SCALARS[precision_on(config, machine.device)]
        shape = Shape.of(model, config.lora, scalar)
        if config.has_replay_token and tokenizer is not None and len(tokenizer) >= shape.vocabulary:
            tables = 1 if shape.tied else 2  # the replay token needs a row more
            shape = replace(
                shape,
                vocabulary=len(tokenizer) + 1,
                parameters=shape.parameters + tables * shape.width,
            )
        Adapters(model, config.lora, model.get_output_embeddings())  # refuses what a run would
        reason = Decoder.reason_against(model, config.backbone.attention)
        return Prediction(config, shape, lengths, machine, reason)

    @cached_property
    def memory(self) -> dict[str, Peak]:
        """The peak of each phase of the last task, which has the longest past."""
        machine = self.machine
        return PhaseMemory(
            self.shape, self.config, self.lengths, machine.device, machine.memory
        ).peaks()

    @property
    def highest(self) -> str:
        """The phase that takes the most of the device."""
        return max(self.memory, key=lambda phase: self.memory[phase].total)

    @property
    def needed(self) -> int:
        """Bytes of the device at the highest point, with what is taken beside tensors."""
        tensors = self.memory[self.highest].total
        return tensors + self.machine.beside(tensors)

    @property
    def fits(self) -> bool | None:
        """Whether it fits; None where the device's memory is not known."""
        return None if self.machine.memory is None else self.needed <= self.machine.memory

    @cached_property
    def times(self) -> Times | None:
        """Operations and seconds; None without rates."""
        rates = self.machine.rates
        return None if rates is None else Times(self.shape, self.config, self.lengths, rates)

    @cached_property
    def disk(self) -> Disk:
        return Disk(self.shape, self.config, self.lengths)

    @property
    def unknown(self) -> tuple[str, ...]:
        """Mechanisms of other packages, which are not counted."""
        return Mechanisms.of(self.config).unknown

    def under(self, *overrides: str) -> Prediction:
        """The same with other settings of the method, not of the stream or the model's name."""
        config = RunConfig.of(self.config.model_dump(mode="json"), overrides)
        scalar = _SCALARS[precision_on(config, self.machine.device)]
        shape = replace(self.shape, rank=config.lora.rank, scalar=scalar)
        return replace(self, config=config, shape=shape)

    def as_json(self) -> dict[str, Any]:
        """All numbers, in bytes, seconds and operations."""
        last, times, disk = self.lengths.tasks, self.times, self.disk
        return {
            "model": self.config.backbone.name,
            "method": self.config.method,
            "device": self.machine.device,
            "precision": precision_on(self.config, self.machine.device),
            "parameters": self.shape.parameters,
            "trainable": self.shape.trainable,
            "lengths": asdict(self.lengths),
            "not_counted": list(self.unknown),
            "by_modules": self.by_modules,
            "memory": {
                phase: {"total": peak.total, "device": peak.device, "host": peak.host}
                for phase, peak in self.memory.items()
            },
            "beside_tensors": self.needed - self.memory[self.highest].total,
            "needed": self.needed,
            "available": self.machine.memory,
            "fits": self.fits,
            "time": times
            and {
                "rates": asdict(times.rates),
                "beyond_the_count": times.beyond_the_count,
                "operations": {n: one.flops for n, one in times.counted(last).items()},
                "task": times.of_task(last),
                "stream": times.whole(),
            },
            "disk": {
                "first_commit": disk.written(1),
                "last_commit": disk.written(last),
                "end": disk.end(),
                "most": disk.most(),
            },
        }


def precision_on(config: RunConfig, device: DeviceType) -> str:
    """The precision of a backbone on a type of device, which need not be there."""
    chosen = config.backbone.precision
    if chosen != "auto":
        return chosen
    return "bfloat16" if device == "cuda" else "float32"
