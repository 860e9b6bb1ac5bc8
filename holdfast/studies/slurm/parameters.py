"""What a job asks of a Slurm cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field

from holdfast.core.config import Config

# submitit's names for any cluster; it wants the others with the cluster's name before them.
_OF_ANY_CLUSTER = ("name", "timeout_min", "mem_gb", "gpus_per_node", "cpus_per_task")
_Count = Annotated[int, Field(ge=1)]


class SlurmParameters(Config):
    """What each job of a study asks of Slurm, by submitit's names; None is the cluster's default.

    timeout_min: minutes until Slurm stops a job, which is then queued again; max_num_timeout: so
    many times at most; signal_delay_s: seconds before that in which it stops by itself; setup:
    shell commands before it; additional_parameters: any other option of ``sbatch``, by its name.
    """

    hints: ClassVar[Mapping[str, str]] = {
        "time": "write timeout_min, in minutes",
        "mem": "write mem_gb",
        "array_parallelism": "--workers says how many jobs run at once",
        "nodes": "a cell is learned by one process on one node",
        "tasks_per_node": "a cell is learned by one process on one node",
        "ntasks_per_node": "a cell is learned by one process on one node",
    }

    name: str = "holdfast"
    timeout_min: _Count = 240
    max_num_timeout: Annotated[int, Field(ge=0)] = 100
    signal_delay_s: _Count = 90
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    nodelist: str | None = None
    exclude: str | None = None
    exclusive: bool | None = None
    gres: str | None = None
    gpus_per_node: _Count | None = None
    cpus_per_task: _Count | None = None
    mem_gb: Annotated[float, Field(gt=0)] | None = None
    mem_per_cpu: str | None = None
    mem_per_gpu: str | None = None
    comment: str | None = None
    mail_type: str | None = None
    mail_user: str | None = None
    setup: list[str] | None = None
    srun_args: list[str] = []
    additional_parameters: dict[str, Any] = {}

    def for_submitit(self, threads: int, parallel: int) -> dict[str, Any]:
        """The arguments of ``submitit.AutoExecutor.update_parameters``.

        threads: of each worker, its processors unless ``cpus_per_task`` says another number;
        parallel: how many jobs of an array may run at once.
        """
        given = self.model_dump(exclude_none=True, exclude={"max_num_timeout"})
        processors = given.setdefault("cpus_per_task", threads)
        # srun does not take this number over from the job (since Slurm 22.05).
        given["srun_args"] = [f"--cpus-per-task={processors}", *self.srun_args]
        # Slurm then queues a job again by itself when its node fails or a partition takes it back.
        given["additional_parameters"] = {"requeue": True, **self.additional_parameters}
        given["array_parallelism"] = parallel
        names = {key: key if key in _OF_ANY_CLUSTER else f"slurm_{key}" for key in given}
        return {"stderr_to_stdout": True} | {names[key]: value for key, value in given.items()}
