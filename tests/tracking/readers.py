"""What each tracker's client has written, read back from its own files."""

from __future__ import annotations

import json
import sqlite3
import struct
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Points = dict[str, dict[int, float]]  # by name, values by place on the axis


def of_tensorboard(place: Path) -> Points:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found: Points = {}
    files = EventAccumulator(str(place / "run" / "tensorboard"))
    files.Reload()
    for name in files.Tags()["scalars"]:
        found[name] = {event.step: event.value for event in files.Scalars(name)}
    return found


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
        found = []
        for data in records(path.read_bytes()):
            found.append(Record())
            found[-1].ParseFromString(data)
        if any(record.WhichOneof("record_type") == "exit" for record in found):
            return found
        assert time.monotonic() < end, f"{path} has no end"
        time.sleep(0.05)


def of_wandb(place: Path) -> Points:
    found: Points = defaultdict(dict)
    for path in sorted((place / "run" / "wandb").glob("offline-run-*/*.wandb")):
        for record in wandb_records(path):
            items = {
                item.key or "/".join(item.nested_key): json.loads(item.value_json)
                for item in record.history.item
            }
            axis = "step" if "step" in items else "task"
            for name, value in items.items():
                if name.startswith(f"{axis}/"):
                    found[name][items[axis]] = value
    return found


def of_mlflow(place: Path) -> Points:
    import mlflow

    client = mlflow.MlflowClient()
    experiment = client.get_experiment_by_name("holdfast")
    (run,) = client.search_runs([experiment.experiment_id])  # continued, not begun again
    assert run.data.params["optim.lr"] == "0.03"
    assert run.info.status == "FINISHED"
    return {
        name: {one.step: one.value for one in client.get_metric_history(run.info.run_id, name)}
        for name in run.data.metrics
    }


def of_trackio(place: Path) -> Points:
    found: Points = defaultdict(dict)
    with sqlite3.connect(place / "trackio" / "holdfast.db") as database:
        (runs,) = database.execute("select count(distinct run_name) from metrics")
        assert runs == (1,)  # continued, not begun again
        for step, metrics in database.execute("select step, metrics from metrics"):
            for name, value in json.loads(metrics).items():
                found[name][step] = value
    return found


READERS: dict[str, Callable[[Path], Points]] = {
    "tensorboard": of_tensorboard,
    "wandb": of_wandb,
    "mlflow": of_mlflow,
    "trackio": of_trackio,
}
