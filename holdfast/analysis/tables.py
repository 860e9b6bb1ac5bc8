"""All tables that can be made of a study, and the reasons why others cannot."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pandas as pd
from pandas.api.types import is_numeric_dtype

from holdfast.analysis.capability import capability
from holdfast.analysis.configurations import bands, configurations, curves, half_lives, seed_spread
from holdfast.analysis.items import item_tables
from holdfast.analysis.study import Study, at_horizon
from holdfast.analysis.uncertainty import HALF_LIFE, differences, means
from holdfast.core.errors import HoldfastError, did_you_mean
from holdfast.core.files import json_text


@dataclass(frozen=True)
class Analysis:
    """The tables of a study.

    tables: by name, with the rows of all data sets, none empty; absent: by name, why a table was
    not made; refused: by name and data set, why a table lacks the rows of that data set.
    """

    tables: Mapping[str, pd.DataFrame]
    absent: Mapping[str, str]
    refused: Mapping[tuple[str, str], str]

    def of(self, dataset: str, name: str) -> pd.DataFrame:
        """One data set's rows of a table with the column ``dataset``; empty if there are none."""
        if name not in self.tables:
            return pd.DataFrame()
        table = self.tables[name]
        return table[table["dataset"] == dataset].reset_index(drop=True)


class _Tables(dict[str, pd.DataFrame]):
    """Tables by name; a table that is not there raises HoldfastError with the reason."""

    def __init__(self, tables: Mapping[str, pd.DataFrame], absent: Mapping[str, str]) -> None:
        super().__init__(tables)
        self._absent = absent

    def __missing__(self, name: str) -> pd.DataFrame:
        why = self._absent.get(name) or did_you_mean(name, [*self, *self._absent])
        raise HoldfastError(f"no table {name}: {why}")


class StudyPart:
    """A study of one data set or of all, with the results that several tables share."""

    def __init__(self, study: Study) -> None:
        self.study = study

    @cached_property
    def runs(self) -> pd.DataFrame:
        """The cells at the horizon of their data set."""
        return at_horizon(self.study.cells)

    @cached_property
    def survival(self) -> pd.DataFrame:
        """The mean curve of every method with its band."""
        return bands(curves(self.study))

    @cached_property
    def by_item(self) -> dict[str, pd.DataFrame]:
        """What the runs kept of their items and samples."""
        return item_tables(self.runs)

    @cached_property
    def means(self) -> pd.DataFrame:
        """Each metric of every method with its interval."""
        return means(self.study)

    @property
    def half_lives(self) -> pd.DataFrame:
        """The half-life of every method with its interval."""
        table = half_lives(self.survival)
        lives = self.means[self.means["metric"] == HALF_LIFE]
        return table.merge(lives[["dataset", "method", "low", "high", "seeds"]], how="left")


NO_RUN = "no finished run outside a search"
ONE_SEED = "a spread needs two seeds"
_NO_ITEMS = "no finished run keeps verdicts by item (evaluation.items=true)"
_NO_SAMPLES = "no finished run with replay keeps its samples (sampling.keep=true)"


@dataclass(frozen=True)
class Table:
    """One table of an analysis.

    name: of its files; make: from one data set, or from all at once if ``across``; empty: the
    reason given if it has no rows; of_search: whether it can be made without final runs.
    """

    name: str
    make: Callable[[StudyPart], pd.DataFrame]
    empty: str = NO_RUN
    of_search: bool = False
    across: bool = False


TABLES = (
    Table("configurations", lambda part: configurations(part.study.cells)),
    Table("means", lambda part: part.means),
    Table(
        "differences",
        lambda part: differences(part.study),
        "a difference needs two methods and two seeds",
    ),
    Table("seed_spread", lambda part: seed_spread(part.study.cells), ONE_SEED),
    Table(
        "capability",
        lambda part: capability(part.study.cells),
        "holdfast capability has not been asked of any final run",
    ),
    Table("survival", lambda part: part.survival),
    Table("half_lives", lambda part: part.half_lives),
    Table("items", lambda part: part.by_item["items"], _NO_ITEMS),
    Table("samples", lambda part: part.by_item["samples"], _NO_SAMPLES),
    Table("samples_by_age", lambda part: part.by_item["samples_by_age"], _NO_SAMPLES),
)


def analyse(study: Study, wanted: Sequence[Table] = TABLES) -> Analysis:
    """Make every wanted table for which the study has the data; the others do not stop it.

    If only some data sets lack the data, ``absent`` names these, as in ``items of llm_qa``.
    """
    datasets = dict.fromkeys([*study.cells["dataset"], *study.traces])
    parts = {name: StudyPart(_of_dataset(study, name)) for name in datasets}
    whole = {"": StudyPart(study)}
    learned = not whole[""].runs.empty
    tables: dict[str, pd.DataFrame] = {}
    absent: dict[str, str] = {}
    refused: dict[tuple[str, str], str] = {}
    for table in wanted:
        pieces, reasons = [], {}
        for dataset, part in (whole if table.across else parts).items():
            if part.runs.empty and not table.of_search:
                continue
            try:
                pieces.append(table.make(part))
            except HoldfastError as error:
                reasons[dataset] = str(error)
        pieces = [piece for piece in pieces if len(piece)]
        refused |= {(table.name, dataset): why for dataset, why in reasons.items()}
        if pieces:
            tables[table.name] = pd.concat(pieces, ignore_index=True)
            absent |= {f"{table.name} of {dataset}": why for dataset, why in reasons.items()}
        elif reasons:
            absent[table.name] = "; ".join(dict.fromkeys(reasons.values()))
        else:
            absent[table.name] = table.empty if learned or table.of_search else NO_RUN
    return Analysis(_Tables(tables, absent), absent, refused)


def markdown(table: pd.DataFrame) -> str:
    """A table as Markdown: numbers with three decimals, p with two digits, bytes with none."""
    columns = [str(name) for name in table.columns]
    lines = [columns, ["--:" if is_numeric_dtype(table[name]) else ":--" for name in table.columns]]
    for row in table.to_dict("records"):
        lines.append([_text(str(name), value) for name, value in row.items()])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def json_rows(table: pd.DataFrame) -> str:
    """A table as JSON text, one object per row; null for NaN and infinity.

    Numbers keep all their digits, as in CSV, so that a p of 3e-14 does not become 0.
    """
    values = table.replace([math.inf, -math.inf], math.nan).astype(object)
    return json_text(values.where(values.notna(), None).to_dict("records"))


def _of_dataset(study: Study, dataset: str) -> Study:
    """The study, restricted to one data set."""
    traces = {name: trace for name, trace in study.traces.items() if name == dataset}
    return replace(study, cells=study.cells[study.cells["dataset"] == dataset], traces=traces)


def _text(name: str, value: Any) -> str:
    if isinstance(value, float):
        if math.isnan(value):
            return ""
        if name == "p":
            return f"{value:.2g}"
        return f"{value:.0f}" if name.endswith("bytes") else f"{value:.3f}"
    if value is None or value is pd.NA:
        return ""
    return " ".join(str(value).split()).replace("|", "\\|")  # one line per row
