"""What each tracker's client has written, read back from its own files.

A reader takes the folder of a test; the trajectories lie in folders of its folder ``cells``.
"""

from __future__ import annotations

import json
import sqlite3
import struct
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple


class WorkReport(NamedTuple):
    """Of a run: its group, and by name the values by place on the axis."""

    group: str | None
    points: dict[str, dict[int, float]]


Runs = dict[str, WorkReport]  # by the run's name


def of_tensorboard(place: Path) -> Runs:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    runs: Runs = {}
    for folder in {path.parent for path in place.glob("cells/*/tensorboard/**/events.*")}:
        files = EventAccumulator(str(folder)).Reload()
        points = {
            name: {event.step: event.value for event in files.Scalars(name)}
            for name in files.Tags()["scalars"]
        }
        alone = folder.name == "tensorboard"
        name, group = (folder.parent.name, None) if alone else (folder.name, folder.parent.name)
        runs[name] = WorkReport(group, points)
    return runs


def records(data: bytes) -> Iterator[bytes]:
    """The records of a file in the format of LevelDB's log, after the client's 7 bytes."""
    place, parts = 7, b""
    while place + 7 <= len(data):
        if 0x8000 - place % 0x8000 < 7:  # no room for a header: the next block
            place += 0x8000 - place % 0x8000
            continue
        _, size, kind = struct.unpack("<IHB", data[place : place + 7])
        parts += data[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):  # whole, or the last part
            yield parts
            parts = b""


def wandb_records(path: Path, within: float = 20.0) -> list[Any]:
    """The records of a file of an offline run, which a process of wandb may still be writing."""
    from wandb.proto.wandb_internal_pb2 import Record

    end = time.monotonic() + within
    while True:
        entries = [Record.FromString(data) for data in records(path.read_bytes())]
        if any(record.WhichOneof("record_type") == "exit" for record in entries):
            return entries
        assert time.monotonic() < end, f"{path} has no end"
        time.sleep(0.05)


def of_wandb(place: Path) -> Runs:
    runs: Runs = {}
    for path in sorted(place.glob("cells/*/wandb/offline-run-*/*.wandb")):
        records = wandb_records(path)
        (run,) = [record.run for record in records if record.WhichOneof("record_type") == "run"]
        points = runs.setdefault(
            run.display_name, WorkReport(run.run_group or None, defaultdict(dict))
        ).points
        for record in records:
            items = {
                item.key or "/".join(item.nested_key): json.loads(item.value_json)
                for item in record.history.item
            }
            axis = "step" if "step" in items else "task"
            for name, value in items.items():
                if name.startswith(f"{axis}/"):
                    points[name][items[axis]] = value
    return runs


def of_mlflow(place: Path) -> Runs:
    import mlflow

    client = mlflow.MlflowClient()
    experiment = client.get_experiment_by_name("holdfast")
    runs: Runs = {}
    for run in client.search_runs([experiment.experiment_id]):
        assert run.info.run_name not in runs  # continued, not begun again
        assert run.data.params["optim.lr"] == "0.03"
        assert run.info.status == "FINISHED"
        histories = {
            name: client.get_metric_history(run.info.run_id, name) for name in run.data.metrics
        }
        points = {
            name: {point.step: point.value for point in history}
            for name, history in histories.items()
        }
        runs[run.info.run_name] = WorkReport(run.data.tags.get("holdfast_study"), points)
    return runs


def of_trackio(place: Path) -> Runs:
    runs: Runs = {}
    with sqlite3.connect(place / "trackio" / "holdfast.db") as database:
        for name, config in database.execute("select run_name, config from configs"):
            group = json.loads(config).get("_Group")
            runs[name.rpartition("-")[0]] = WorkReport(group, defaultdict(dict))
        for name, step, metrics in database.execute("select run_name, step, metrics from metrics"):
            for metric, value in json.loads(metrics).items():
                runs[name.rpartition("-")[0]].points[metric][step] = value
    return runs


READERS: dict[str, Callable[[Path], Runs]] = {
    "tensorboard": of_tensorboard,
    "wandb": of_wandb,
    "mlflow": of_mlflow,
    "trackio": of_trackio,
}
