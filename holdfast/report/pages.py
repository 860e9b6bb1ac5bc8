"""Static HTML pages with their style and figures inside: of a study, of a memory's changes.

Source: app:results.
"""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from holdfast.analysis.study import Study, at_horizon, in_report_order
from holdfast.analysis.tables import Analysis, analyse
from holdfast.core.errors import HoldfastError
from holdfast.core.files import write_json, write_text_atomically
from holdfast.core.mechanisms import VANILLA, settings_of, tag_of
from holdfast.report import names, style
from holdfast.report.bars import KINDS
from holdfast.report.figures import inline_svg, study_figures
from holdfast.report.matrices import plot_comparison
from holdfast.results import Description, RecallMatrix
from holdfast.results.metrics import MEANS
from holdfast.results.record import flat

_MOST = 96  # heat maps of a data set at most

# Of these tables the page shows a part, or their means.
_SHAPED: Mapping[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
    "means": lambda table: table[table["metric"] != "half_life"].dropna(subset="value"),
    "differences": lambda table: table[table["metric"] == "final"].drop(columns="metric"),
    "survival": lambda table: table.pivot(
        index="age", columns="method", values="mean"
    ).reset_index(),
    "samples": lambda table: (
        table.groupby("method", sort=False)[[*KINDS, "distinct"]].mean().reset_index()
    ),
    "capability": lambda table: table.drop(columns=["value_low", "value_high", "drawn", "items"]),
}


def write_page(study: Study, path: str | Path, *, title: str | None = None) -> Path:
    """Write a study as one HTML file that loads no other file and no URL; return its path.

    study: from :func:`holdfast.read_study`; path: in a folder that exists; title: None for the
    names of the data sets. Equal studies at equal paths give equal files.
    Raises HoldfastError for a study without a trajectory or a search, or for a path that cannot be
    written.
    """
    path = Path(path)
    write_text_atomically(path, render(study, path, title=title))
    return path


def render(study: Study, path: Path, *, title: str | None = None) -> str:
    """The text of the page that :func:`write_page` writes to ``path``."""
    datasets = list(dict.fromkeys([*study.cells["dataset"], *study.traces]))
    if not datasets:
        raise HoldfastError("the study has no trajectory and no search; run it first")
    configs = [_config(Path(place)) for place in study.cells["path"]]
    return _filled(
        "page.html",
        title=title or f"Holdfast: {', '.join(datasets)}",
        parts=[_part(study, name, f"part{place}") for place, name in enumerate(datasets, 1)],
        missing=study.missing,
        unread=configs.count(None),
        runs=_runs(study.cells, configs, path),
        settings=_settings([config for config in configs if config is not None]),
    )


def _part(study: Study, dataset: str, place: str) -> dict[str, Any]:
    """One data set's part of the page. place: a name that is unique on the page."""
    cells = study.cells[study.cells["dataset"] == dataset]
    shown = in_report_order(cells)
    if shown.empty:  # only searches: their finalists, each trajectory once
        last = cells[cells["horizon"] == cells["horizon"].max()].drop_duplicates("path")
        shown = last.assign(method=last["candidate"], searched=False)
    shown_study = replace(study, cells=shown, traces={}, missing=())
    analysis = analyse(shown_study)
    tables = {name: analysis.of(dataset, name) for name in analysis.tables}
    tables |= {name: shape(tables[name]) for name, shape in _SHAPED.items() if name in tables}
    tables["search"] = study.traces.get(dataset, pd.DataFrame())
    return {
        "name": dataset,
        "summary": _summary(at_horizon(shown), analysis.of(dataset, "configurations")),
        "refused": [*_refused(analysis), *_left_out(shown)],
        "figures": {
            name: inline_svg(figure, f"{place}-{name}")
            for name, figure in _figures(shown_study, analysis).items()
        },
        "tables": {name: readable(table) for name, table in tables.items() if len(table)},
    }


def _figures(study: Study, analysis: Analysis) -> dict[str, Figure]:
    """The study's figures, and the matrices of all runs if those figures leave some out."""
    figures = dict(study_figures(study, analysis).figures)
    begun = study.cells[study.cells["horizon"] > 0]
    mean = begun.groupby("method")["final"].transform("mean")
    begun = begun.assign(mean=-mean).sort_values(["mean", "method", "seed"])
    runs: dict[str, RecallMatrix] = {}
    for run in begun.head(_MOST).itertuples():
        title = "\n".join([tag_of(run.method), *settings_of(run.method), f"seed {run.seed}"])
        while title in runs:
            title += " again"  # the page then says why it has no means
        runs[title] = study.matrices[run.path]
    images = figures["matrices"].axes[0].images if "matrices" in figures else []
    if len(runs) > len(images):
        figures["trajectories"] = plot_comparison(runs)
    return figures


def _left_out(cells: pd.DataFrame) -> list[str]:
    begun = int((cells["horizon"] > 0).sum())
    return [f"Of {begun} runs the matrices of {_MOST} are drawn."] if begun > _MOST else []


def _summary(runs: pd.DataFrame, table: pd.DataFrame) -> list[str]:
    """The first sentences. runs: at their horizon; table: their configurations, the best first."""
    if table.empty:
        return ["No trajectory has been evaluated yet."] if runs.empty else []
    horizon, seeds = int(table["horizon"].iloc[0]), sorted(set(runs["seed"]))
    if not horizon:
        return ["Nothing has been learned yet."]
    finals = table.set_index("method")["final"].dropna()
    if finals.empty:
        return ["The last row does not ask every task, so no Final is known."]
    best = finals.index[0]
    lines = [f"{best} recalls {finals.iloc[0]:.1%} of {horizon} tasks after the last of them."]
    if VANILLA in finals and best != VANILLA:
        lines.append(f"{VANILLA}, which has no mechanism, recalls {finals[VANILLA]:.1%}.")
    if len(seeds) == 1:
        lines.append("One seed was run, so nothing is known of the spread.")
    elif table["seeds"].iloc[0] < len(seeds):
        lines.append(f"Of {best} only {table['seeds'].iloc[0]} of {len(seeds)} seeds are finished.")
    return lines


def _refused(analysis: Analysis) -> list[str]:
    """A line on the tables that cannot be made, for each reason."""
    reasons = defaultdict(list)
    for (name, _), why in analysis.refused.items():
        reasons[why].append(name)
    return [f"No {', '.join(tables)}: {why}." for why, tables in reasons.items()]


def readable(table: pd.DataFrame) -> pd.DataFrame:
    """A table as texts: a deviation beside its value, the ends of an interval in one column."""
    in_tasks = {"half_life", "low", "high"} if "half_life" in table else set()
    texts = table.apply(lambda column: _texts(column, in_tasks))
    for name in MEANS:
        if f"{name}_sd" in texts:
            texts[name] += (" ± " + texts[f"{name}_sd"]).where(table[f"{name}_sd"].notna(), "")
    if {"low", "high"} <= {*texts}:
        both = texts["low"] + " to " + texts["high"]
        interval = both.where(table[["low", "high"]].notna().any(axis="columns"), "–")
        texts.insert(list(texts).index("low"), "95% interval", interval)
    spare = {"dataset", "low", "high", *(f"{name}_sd" for name in MEANS)}
    return texts[[name for name in texts if name not in spare]]


def _texts(column: pd.Series, in_tasks: Collection[object] = ()) -> pd.Series:
    """A column as texts: shares with three decimals, others with four significant digits.

    in_tasks: columns that are no shares, whatever their values.
    """
    digits = ""
    if pd.api.types.is_float_dtype(column):
        digits = ".4g" if column.name in in_tasks or (column > 1).any() else ".3f"
    texts = ["–" if pd.isna(value) else format(value, digits) for value in column]
    return pd.Series(texts, index=column.index, dtype=object)


def _config(directory: Path) -> Description | None:
    try:
        return Description.read(directory)
    except HoldfastError:
        return None


def _runs(
    cells: pd.DataFrame, configs: Sequence[Description | None], page: Path
) -> list[dict[str, Any]]:
    """Each run with its identity, and where its files are as seen from the page's folder."""
    texts = cells[["candidate", "dataset", "seed", "horizon", "final"]].apply(_texts)
    rows: list[dict[str, Any]] = texts.to_dict("records")
    for row, path, config in zip(rows, cells["path"], configs, strict=True):
        row["identity"] = "" if config is None else config.identity
        with suppress(ValueError):  # on another drive
            path = Path(os.path.relpath(path, page.parent)).as_posix()
        row["link"] = "./" + quote(path)
    return rows


def _settings(configs: Sequence[Description]) -> Iterator[tuple[str, list[tuple[str, int]]]]:
    """Yield each setting with its values and how many runs have each; 0 if all runs have it."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for config in configs:
        for section, source in (("stream", config.stream), ("backbone", config.backbone)):
            counts[section][f"{source['name']}, fingerprint {source['fingerprint']}"] += 1
        counts["versions"][", ".join(f"{key} {text}" for key, text in config.versions.items())] += 1
        for name, value in flat(config.config).items():
            if name not in ("method", "seed"):  # which the table of runs has
                counts[name][json.dumps(value)] += 1
    for name, values in counts.items():
        yield name, [(text, runs % len(configs)) for text, runs in sorted(values.items())]


_FACTS = {
    "unchanged": names.GREY,
    "added": names.GREEN,
    "corrected": names.ORANGE,
    "forgotten": names.VERMILION,
}


def write_changes(values: Mapping[str, Any], folder: Path) -> Path:
    """Write ``diff.json`` and ``diff.html`` into a folder; return the page's path.

    values: of :meth:`holdfast.memory.changes.Changes.values`. The page loads no other file.
    Raises HoldfastError if the folder cannot be written.
    """
    write_json(folder / "diff.json", values, parents=True)
    drawn = inline_svg(plot_changes(values), "changes")
    title = f"What changed: {values['after']}"
    text = _filled("changes.html", **values, title=title, drawn=drawn)
    write_text_atomically(folder / "diff.html", text, parents=True)
    return folder / "diff.html"


def plot_changes(values: Mapping[str, Any]) -> Figure:
    """Bars of the facts unchanged, added, corrected and forgotten, and of the everyday questions
    answered right before and after, if any were asked.

    values: the contents of ``diff.json``.
    """
    facts, answers = values["facts"], values["answers"]
    parts: list[tuple[str, dict[str, tuple[int, str]], int]] = []
    counts = {
        kind: (facts[kind] if kind == "unchanged" else len(facts[kind]), colour)
        for kind, colour in _FACTS.items()
    }
    parts.append(("facts", counts, max(1, *(count for count, _ in counts.values()))))
    if answers is not None:
        colours = {"before": names.GREY, "after": names.BLUE}
        right = {when: (answers[when], colour) for when, colour in colours.items()}
        for when in ("before", "after"):
            if (alone := answers[f"weights_{when}"]) is not None:
                right[f"{when}, weights alone"] = (alone["right"], names.ORANGE)
        asked = answers["asked"]
        parts.append((f"everyday questions answered right, of {asked}", right, asked))
    heights = [0.3 * len(part) + 0.5 for _, part, _ in parts]
    figure = style.Drawing(style.PAGE * 0.75, sum(heights) + 0.2)
    panels = figure.subplots(len(parts), 1, squeeze=False, height_ratios=heights)
    for axes, (title, part, most) in zip(panels.flat, parts, strict=True):
        style.dress(axes)
        for place, (count, colour) in enumerate(part.values()):
            axes.barh(place, count, 0.6, color=colour)
            style.number_bar(axes, str(count), count, place, gap=3)
        axes.set_yticks(range(len(part)), list(part))
        axes.invert_yaxis()
        axes.set_xlim(0, 1.1 * most)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.tick_params(axis="y", length=0)
        style.title(axes, title, "left")
    return figure


def _filled(template: str, **values: Any) -> str:
    """Render one of this package's templates, with the style that all pages share."""
    environment = Environment(
        loader=PackageLoader("holdfast.report", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    css = (resources.files(__package__) / "page.css").read_text("utf-8")
    return environment.get_template(template).render(**values, style=Markup(css))
