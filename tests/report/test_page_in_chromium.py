"""The page as a reader has it: in a real browser, with mouse and keyboard, and no network."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from holdfast.analysis.composition import compositions
from holdfast.analysis.curves import bands, curves
from holdfast.analysis.study import Study
from holdfast.analysis.tables import analyse
from holdfast.analysis.uncertainty import differences
from holdfast.report.page import write_page
from holdfast.results import RecallMatrix
from tests.report.page_study import fading, standings, study_of, together

TASKS = 12
SEEDS = (41, 42)
SCRIPT = "</script><script>window.ran = true</script><img src=x onerror='window.ran = true'>"

# si_sd was not run; olora is in no factorial.
METHODS = [tag for tag in compositions() if tag != "si_sd"] + ["olora"]


def matrix_of(method: str, seed: int) -> RecallMatrix:
    """No two are alike, and more mechanisms keep more."""
    mechanisms = 0 if method == "vanilla" else len(method.split("_"))
    kept = 0.3 + 0.15 * mechanisms + 0.003 * METHODS.index(method)
    if method == "olora":
        kept = 0.925  # half-lives of 9 and 11 tasks
    return fading(TASKS, kept + 0.01 * (seed - 41), items=200)


def moved(study: Study) -> Study:
    """The same runs in another directory."""
    paths = {path: f"again/{path}" for path in study.matrices}
    cells = study.cells.assign(path=study.cells["path"].map(paths))
    return Study(cells, {paths[path]: matrix for path, matrix in study.matrices.items()}, {}, ())


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A factorial with a search and a second data set; a single run; texts that are scripts."""
    folder = tmp_path_factory.mktemp("pages")
    whole = study_of({(tag, seed): matrix_of(tag, seed) for tag in METHODS for seed in SEEDS})
    other = study_of({("vanilla", 41): matrix_of("vanilla", 41)}, dataset="real_qa")
    hostile = study_of(
        {(method, 41): fading(3, 0.5) for method in (SCRIPT, "vanilla", "sd")},
        dataset=SCRIPT,
        missing=(SCRIPT,),
    )
    studies = {
        "full": together(whole, other, traces={"symbol_qa": standings()}),
        "single": study_of({("vanilla", 41): fading(4, 0.5)}),
        "hostile": hostile,
        "twice": together(whole, moved(study_of({("merge", 41): matrix_of("merge", 41)}))),
    }
    return {
        name: write_page(one, analyse(one), folder / f"{name}.html")
        for name, one in studies.items()
    }


Opened = Callable[..., Page]


@pytest.fixture
def opened(browser: Browser, pages: dict[str, Path]) -> Iterator[Opened]:
    """Open a page; afterwards it must have asked for nothing and complained of nothing."""
    contexts, requests, complaints = [], [], []

    def open_(name: str, width: int = 1280, scheme: str = "light") -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, accept_downloads=True
        )
        contexts.append(context)
        context.on("request", lambda request: requests.append(request.url))
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.set_default_timeout(5000)
        page.goto(pages[name].as_uri())
        return page

    yield open_
    for context in contexts:
        context.close()
    assert complaints == []
    assert {url for url in requests if not url.startswith(("data:", "blob:"))} <= {
        path.as_uri() for path in pages.values()
    }


def explorer(page: Page) -> Locator:
    return page.locator('[data-draw="explorer"]').first


def at_cell(heatmap: Locator, after_task: int, on_task: int, tasks: int) -> tuple[float, float]:
    """Where on the screen a cell of a heat map is."""
    box = heatmap.locator("image").bounding_box()
    assert box is not None
    size = box["width"] / tasks
    return box["x"] + (on_task - 0.5) * size, box["y"] + (after_task - 0.5) * size


def told(after_task: int, on_task: int, matrix: RecallMatrix) -> str:
    recall = matrix.entry(after_task, on_task)
    assert recall is not None
    return (
        f"after task {after_task}, on task {on_task}: {recall.correct} of {recall.items} "
        f"({100 * recall.accuracy:.1f}%)"
    )


@pytest.mark.parametrize("name", ["full", "single"])
def test_every_drawing_is_there(opened, name):
    page = opened(name)
    for place in page.locator("article:not(.away) [data-draw]").all():
        assert place.locator("svg").count() >= 1
    assert page.locator("article:not(.away)").count() == 1


def test_toggles_change_matrix_curve_and_effects(opened):
    page = opened("full")
    part = explorer(page)
    expect(part.locator(".statement")).to_contain_text("si_sd_replay_merge recalls")
    image, curve = part.locator("image"), part.locator("path.chosen")
    before = image.get_attribute("href"), curve.get_attribute("d")
    part.get_by_role("button", name="Replay").click()
    expect(part.locator(".statement")).to_contain_text("si_sd_merge recalls")
    after = image.get_attribute("href"), curve.get_attribute("d")
    assert before[0] != after[0] and before[1] != after[1]
    means = {
        tag: sum(matrix_of(tag, seed).accuracies()[-1, 1:-1].mean() for seed in SEEDS) / 2
        for tag in ("si_sd_merge", "si_sd_replay_merge")
    }
    gain = 100 * (means["si_sd_replay_merge"] - means["si_sd_merge"])
    row = part.locator("tbody tr", has_text="Replay")
    shown = row.locator("td").first.text_content()
    assert shown.startswith("+") and float(shown) == pytest.approx(gain, abs=0.0501)
    runs = {(tag, seed): matrix_of(tag, seed) for tag in METHODS for seed in SEEDS}
    table = differences(study_of(runs)).set_index(["metric", "method", "other"])
    known = table.loc[("final", "si_sd_replay_merge", "si_sd_merge")]
    bounds = [f"+{100 * known[name]:.1f}" for name in ("low", "high")]
    assert row.locator("td").nth(1).text_content() == " to ".join(bounds)


def test_a_composition_that_was_not_run_is_said_plainly(opened):
    part = explorer(opened("full"))
    for name in ("Replay", "Merge"):
        part.get_by_role("button", name=name).focus()
        part.page.keyboard.press("Space")
    expect(part.locator(".statement")).to_have_text("si_sd was not run in this study.")
    expect(part.locator(".absent")).to_be_visible()
    assert part.locator("image").count() == 0
    assert part.locator("path.chosen").count() == 0
    assert part.locator("path.other").count() == len(METHODS)
    expect(part.locator("tbody td").first).to_have_text("not run")


def test_a_seed_can_be_chosen(opened):
    part = explorer(opened("full"))
    part.get_by_role("button", name="seed 42").click()
    heatmap = part.locator(".heatmap")
    heatmap.focus()
    part.page.keyboard.press("ArrowDown")
    matrix = matrix_of("si_sd_replay_merge", 42)
    expect(part.locator("figure .reading")).to_have_text(told(TASKS, 1, matrix))
    assert told(TASKS, 1, matrix) != told(TASKS, 1, matrix_of("si_sd_replay_merge", 41))


def test_sorting_by_mouse_and_by_keyboard(opened):
    page = opened("full")
    table = page.locator("table.sortable").first
    header = table.locator("th", has_text="Final")

    def values() -> list[float]:
        cells = table.locator("tbody td:nth-child(3)").all()
        return [float(cell.get_attribute("data-value")) for cell in cells]

    expect(header).to_have_attribute("aria-sort", "descending")
    assert values() == sorted(values(), reverse=True)
    header.get_by_role("button").click()
    expect(header).to_have_attribute("aria-sort", "ascending")
    assert values() == sorted(values())
    assert len(set(values())) == len(METHODS)
    table.locator("th", has_text="Half-life").get_by_role("button").click()
    ages = [cell.get_attribute("data-value") for cell in table.locator("td:last-child").all()]
    known = [float(age) for age in ages if age]
    assert known == sorted(known, reverse=True)
    assert known[0] >= 10 > known[-1]  # as texts these would be the other way round
    assert ages[-1] == ""  # no half-life within the horizon: last in either direction
    name = table.locator("th", has_text="Method")
    name.get_by_role("button").focus()
    page.keyboard.press("Enter")
    expect(name).to_have_attribute("aria-sort", "ascending")
    assert header.get_attribute("aria-sort") is None
    shown = table.locator("tbody th").all_text_contents()
    assert shown == sorted(shown) and len(shown) == len(METHODS)


def test_hovering_tells_the_counts(opened):
    page = opened("full")
    figure = page.locator('[data-draw="gallery"] figure', has_text="olora").first
    figure.scroll_into_view_if_needed()
    heatmap, reading = figure.locator(".heatmap"), figure.locator(".reading")
    for cell in ((1, 1), (5, 2), (12, 12), (12, 1)):
        page.mouse.move(*at_cell(heatmap, *cell, TASKS))
        expect(reading).to_have_text(told(*cell, matrix_of("olora", 41)))
    page.mouse.move(*at_cell(heatmap, 2, 9, TASKS))  # above the diagonal nothing is recalled
    expect(reading).to_have_text("")


def test_arrow_keys_read_the_matrix_and_the_curves(opened):
    page = opened("single")
    heatmap = page.locator(".heatmap")
    heatmap.focus()
    for key in ("ArrowDown", "ArrowRight", "ArrowUp"):
        page.keyboard.press(key)
    expect(page.locator("figure .reading")).to_have_text(told(3, 2, fading(4, 0.5)))
    page.locator('[data-draw="survival"] .chart svg').focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(page.locator('[data-draw="survival"] .reading')).to_have_text("age 1: vanilla 50.0%")


def test_curves_stand_out_when_chosen(opened):
    page = opened("full")
    part = page.locator('[data-draw="survival"]').first
    count = part.locator("path.chosen").count()
    part.get_by_role("button", name="si_replay_merge", exact=True).click()
    assert part.locator("path.chosen").count() == count + 1
    pressed = part.locator('.legend [aria-pressed="true"]')
    for name in pressed.all_text_contents():
        if name != "si_replay_merge":
            part.get_by_role("button", name=name, exact=True).click()
    looks = part.locator(".legend line").evaluate_all(
        "lines => lines.map(line => getComputedStyle(line).stroke)"
    )
    assert len(set(looks)) == 2  # the chosen one and the others
    part.locator(".chart svg").focus()
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    own = study_of({("m", seed): matrix_of("si_replay_merge", seed) for seed in SEEDS})
    band = bands(curves(own)).set_index("age").loc[3]
    low, high = 100 * band["lowest"], 100 * band["highest"]
    expected = f"{100 * band['mean']:.1f}% ({low:.1f} to {high:.1f}%)"
    expect(part.locator(".reading")).to_have_text(f"age 3: si_replay_merge {expected}")


def test_text_that_looks_like_a_script_does_not_run(opened):
    page = opened("hostile")
    assert page.evaluate("window.ran") is None
    assert page.locator("img").count() == 0
    assert SCRIPT in page.locator(".missing").text_content()
    figure = page.locator("figcaption code").all_text_contents()
    assert SCRIPT in figure
    heatmap = page.locator(".heatmap").first
    heatmap.hover()
    page.locator(".legend button").first.click()
    assert page.evaluate("window.ran") is None


def test_dark_and_light(opened):
    def colours(page: Page) -> tuple[str, str]:
        return tuple(
            page.evaluate(f"getComputedStyle(document.body).{name}")
            for name in ("backgroundColor", "color")
        )

    light, dark = (opened("full", scheme=scheme) for scheme in ("light", "dark"))
    bright, dim = colours(light), colours(dark)
    assert bright[0] != dim[0] and bright[1] != dim[1]
    light.locator("#theme").click()
    assert colours(light) == dim
    expect(light.locator("#theme")).to_have_text("Light page")
    dark.locator("#theme").click()
    assert colours(dark) == bright


@pytest.mark.parametrize("name", ["full", "single", "hostile"])
def test_a_phone_scrolls_in_one_direction(opened, name):
    page = opened(name, width=375)
    assert page.evaluate("document.documentElement.scrollWidth") == 375
    for button in page.locator("#datasets button").all():
        button.click()
        assert page.evaluate("document.documentElement.scrollWidth") == 375


def test_one_dataset_at_a_time_and_all_in_print(opened):
    page = opened("full")
    articles = page.locator("article.dataset")
    page.get_by_role("button", name="real_qa").click()
    expect(articles.nth(0)).to_be_hidden()
    expect(articles.nth(1)).to_be_visible()
    page.emulate_media(media="print")
    expect(articles.nth(0)).to_be_visible()
    expect(articles.nth(1)).to_be_visible()
    expect(page.locator(".downloads")).to_be_hidden()
    assert len(page.pdf()) > 10_000


def test_without_means_the_matrices_are_there(opened):
    page = opened("twice")
    assert "There are no means over seeds. symbol_qa: merge with seed 41" in page.inner_text("main")
    expect(page.locator(".heatmap")).to_have_count(len(METHODS))
    expect(page.locator(".chart")).to_have_count(0)


def test_downloads_are_the_tables(opened, tmp_path):
    page = opened("full")

    def downloaded(name: str) -> list[dict[str, str]]:
        with page.expect_download() as waiting:
            page.get_by_role("button", name=f"{name}.csv").click()
        assert waiting.value.suggested_filename == f"{name}.csv"
        waiting.value.save_as(tmp_path / name)
        with (tmp_path / name).open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    entries = {
        (row["method"], row["seed"], int(row["after_task"]), int(row["on_task"])): (
            int(row["correct"]),
            int(row["items"]),
        )
        for row in downloaded("matrices")
        if row["dataset"] == "symbol_qa"
    }
    assert entries == {
        (tag, str(seed), after_task, on_task): tuple(entry[:2])
        for tag in METHODS
        for seed in SEEDS
        for after_task, on_task, entry in matrix_of(tag, seed).entries()
    }
    rows = downloaded("configurations")
    assert len(rows) == len(METHODS) + 1
    assert float(rows[0]["final"]) == pytest.approx(
        sum(matrix_of(rows[0]["method"], seed).accuracies()[-1, 1:-1].mean() for seed in SEEDS) / 2
    )


def test_captions_and_tables_round_alike(browser, tmp_path, opened):
    # 1/16 and 3/16 in percent end in 25 and 75 hundredths: ties of one decimal.
    runs = {
        (f"m{count}", 1): RecallMatrix().with_row(1, {1: (count, 80)}) for count in range(1, 80, 2)
    }
    study = study_of(runs)
    path = write_page(study, analyse(study), tmp_path / "ties.html")
    page = browser.new_page()
    page.goto(path.as_uri())
    table = page.locator("table.sortable tbody tr").evaluate_all(
        "rows => rows.map(row => [row.cells[0].textContent, row.cells[2].textContent])"
    )
    captions = page.locator("figcaption").all_text_contents()
    page.close()
    assert sorted(f"{name} {final}%, seed 1" for name, final in table) == sorted(captions)
    assert "m5 6.2%, seed 1" in captions  # 6.25


def test_the_search_tells_its_candidates(opened):
    page = opened("full")
    part = page.locator('[data-draw="search"]').first
    assert part.locator("circle.dot").count() == 5  # the failed one has no score
    assert part.locator("circle.going").count() == 4
    part.locator(".chart svg").focus()
    page.keyboard.press("ArrowRight")
    expect(part.locator(".reading")).to_have_text("sd lr=1, horizon 2: rank 1, 90.0%, promoted")
    for _ in range(9):
        page.keyboard.press("ArrowRight")
    expect(part.locator(".reading")).to_have_text("sd lr=1, horizon 4: rank 2, 50.0%, finished")


def test_wide_tables_scroll_by_keyboard_and_others_are_no_stop(opened):
    wide = opened("full", width=375).locator("article:not(.away) .scroll").first
    expect(wide).to_have_attribute("tabindex", "0")
    narrow = opened("full").locator("article:not(.away) .scroll").first
    assert narrow.get_attribute("tabindex") is None
