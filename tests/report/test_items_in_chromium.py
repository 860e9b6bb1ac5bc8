"""The page's items: which facts go first, and the life of one, with mouse and keyboard."""

from __future__ import annotations

import base64
import json
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from holdfast.analysis import analyse, read_study
from holdfast.analysis.items import lives, read_items
from holdfast.report.page import write_page
from holdfast.report.page.lives import lives_of
from tests.analysis.kept import ITEMS, asked, write_kept
from tests.analysis.synthetic import change
from tests.report.page_reader import Read

TASKS = 20
RUNS = (("replay_merge", 41), ("replay_merge", 42), ("merge", 41))
HOSTILE = "</script><script>window.ran = true</script><img src=x onerror='window.ran = true'>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("kept")
    for method, seed in RUNS:
        of = ("items", "samples") if "replay" in method else ("items",)
        write_kept(place / f"{method}-{seed}", method, seed, TASKS, of=of)
    return place


@pytest.fixture(scope="module")
def page_file(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    study = read_study(folder)
    return write_page(study, analyse(study), tmp_path_factory.mktemp("page") / "page.html")


Opened = Callable[..., Page]


@pytest.fixture
def opened(browser: Browser, page_file: Path) -> Iterator[Opened]:
    """Open a page, wait for its items; it must have asked for nothing and complained of nothing."""
    contexts, requests, complaints = [], [], []

    def open_(file: Path = page_file, width: int = 1280, scheme: str = "light") -> Page:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        contexts.append(context)
        context.on("request", lambda request: requests.append(request.url))
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.set_default_timeout(5000)
        page.goto(file.as_uri())
        page.locator(".items tbody tr").first.wait_for()
        return page

    yield open_
    for context in contexts:
        context.close()
    assert complaints == []
    assert all(url.startswith(("data:", "blob:", "file:")) for url in requests)
    assert sum(url.startswith("file:") for url in requests) == len(contexts)


def unpacked(text: str) -> Any:
    return json.loads(zlib.decompress(base64.b64decode(text)))


def test_the_page_carries_every_verdict_and_what_asked_it(folder: Path, page_file: Path) -> None:
    carried = Read(page_file.read_text("utf-8")).data["views"][0]["lives"]
    assert len(carried["facts"]) == 1  # one stream
    for run in carried["runs"]:
        items = read_items(folder / f"{run['method']}-{run['seed']}")
        facts, told = unpacked(carried["facts"][run["facts"]]), unpacked(run["packed"])
        table = lives(items.to_frame()).set_index(["on_task", "item"])
        assert len(table) == len(facts["task"]) == TASKS * ITEMS
        for place, key in enumerate(zip(facts["task"], facts["number"], strict=True)):
            row = table.loc[key]
            assert told["life"][place] == row["life"]
            assert (facts["question"][place], facts["answer"][place]) == (
                row["question"],
                row["answer"],
            )
            if "replay" in run["method"]:
                pairs = told["asked"][place]
                counted = Counter(
                    task
                    for task in range(2, TASKS + 1)
                    for one in asked(run["seed"], task)
                    if one == (key[0], key[1] - 1)
                )
                assert dict(zip(pairs[::2], pairs[1::2], strict=True)) == counted
        assert (told["asked"] is None) == ("replay" not in run["method"])


def test_a_large_study_embeds_some_items_of_each_task(folder: Path) -> None:
    study = read_study(folder)
    rows = study.cells.to_dict("records")
    whole = lives_of(rows, study.matrices)
    assert (whole.every, whole.counted, whole.embedded) == (1, 480, 480)
    some = lives_of(rows, study.matrices, most=200)
    assert (some.every, some.counted, some.embedded) == (3, 480, 180)
    facts = unpacked(some.facts[0])
    assert set(facts["task"]) == set(range(1, TASKS + 1)) and set(facts["number"]) == {1, 4, 7}


def test_the_page_says_that_it_has_only_some(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.report.page.view.lives_of", partial(lives_of, most=200))
    study = read_study(folder)
    page = write_page(study, analyse(study), tmp_path / "page.html").read_text("utf-8")
    assert "180 of the 480 items of 3 runs: one in 3 of each task" in page
    assert "holdfast items RUN --out FILE" in page


def test_the_first_lost_come_first_and_one_is_picked(folder: Path, opened: Opened) -> None:
    page = opened()
    expect(page.locator(".choice option")).to_have_count(len(RUNS))
    best = page.locator(".choice option").first.text_content()
    assert best is not None
    method, seed = best.split(", seed ")
    table = lives(read_items(folder / f"{method}-{seed}").to_frame())
    lost = table["lost_after"].notna().sum()
    expect(page.locator('[data-draw="items"] > div > p').first).to_contain_text(
        f"Of {len(table)} items: {len(table) - lost} recalled at the end, {lost} lost"
    )
    rows = page.locator(".items tbody tr")
    assert rows.count() == 50
    for place in (0, 7, 49):
        row, expected = rows.nth(place).locator("td"), table.iloc[place]
        age = expected["lost_after"] - expected["on_task"]
        assert row.nth(1).text_content() == expected["question"]
        assert row.nth(4).text_content() == str(age)
    rows.nth(7).get_by_role("button").click()
    detail, expected = page.locator(".detail"), table.iloc[7]
    expect(detail.locator(".question")).to_have_text(expected["question"])
    expect(detail.locator(".answer")).to_have_text(expected["answer"])
    expect(detail).to_contain_text(f"lost after task {expected['lost_after']}")
    expect(rows.nth(7)).to_have_attribute("aria-current", "true")
    expect(page.locator("tr[aria-current]")).to_have_count(1)
    page.get_by_role("button", name="Show more").click()
    expect(rows).to_have_count(100)


def test_the_life_of_an_item_is_read_with_the_keyboard(folder: Path, opened: Opened) -> None:
    page = opened()
    page.locator(".choice select").select_option(label="replay_merge, seed 42")
    expect(page.locator(".items th", has_text="Samples")).to_have_count(1)
    search = page.get_by_role("searchbox")
    items = read_items(folder / "replay_merge-42")
    item = items.stream.tasks[3].items[1]
    search.fill(item.answer.lower())
    expect(page.locator(".finder")).to_contain_text("1 of 1 items")
    search.press("Tab")
    for _ in range(8):  # past the headings, which are buttons
        if page.evaluate("document.activeElement.className") == "pick":
            break
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    detail = page.locator(".detail")
    expect(detail.locator(".question")).to_have_text(item.question)
    detail.locator("svg").focus()
    counts = items.rehearsals()[4][1]
    for after in range(4, TASKS + 1):
        page.keyboard.press("ArrowRight")
        told = "recalled" if items.rows[after][4][1] else "not recalled"
        asked_it = "one sample" if counts[after] == 1 else f"{counts[after]} samples"
        samples = f"; {asked_it} asked it before task {after}" if after > 4 else ""
        expect(detail.locator(".reading")).to_have_text(
            f"after task {after}, age {after - 4}: {told}{samples}"
        )
    assert detail.locator(".asked").count() == (counts[5:] > 0).sum() > 0
    assert {items.rows[after][4][1] for after in range(4, TASKS + 1)} == {True, False}


def test_sorting_and_arrow_keys_in_the_list(opened: Opened) -> None:
    page = opened()
    header = page.locator(".items th", has_text="Answer")
    header.get_by_role("button").focus()
    page.keyboard.press("Enter")
    expect(header).to_have_attribute("aria-sort", "ascending")
    answers = page.locator(".items tbody td:nth-child(3)").all_text_contents()
    assert answers == sorted(answers, key=lambda text: (text.lower(), text.swapcase()))
    page.keyboard.press("Enter")
    expect(header).to_have_attribute("aria-sort", "descending")
    assert page.locator(".items tbody td:nth-child(3)").first.text_content() > answers[0]
    buttons = page.locator(".items .pick")
    buttons.first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(buttons.nth(2)).to_be_focused()


def test_the_map_tells_and_picks(folder: Path, opened: Opened) -> None:
    page = opened()
    page.locator(".choice select").select_option(label="merge, seed 41")
    table = lives(read_items(folder / "merge-41").to_frame())
    chart = page.locator(".lifemap")
    chart.focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    first = table.iloc[1]
    told = "recalled" if first["life"][1] == "1" else "not recalled"
    expect(page.locator(".lives .reading")).to_have_text(
        f"task {first['on_task']}, {first['question']} → {first['answer']}: "
        f"after task {first['on_task'] + 1}, age 1: {told}"
    )
    page.keyboard.press("Enter")
    expect(page.locator(".detail .question")).to_have_text(first["question"])
    box = chart.locator("image").bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + 2, box["y"] + box["height"] * (100.5 / len(table)))
    expect(page.locator(".detail .question")).to_have_text(table.iloc[100]["question"])
    expect(page.locator(".items th", has_text="Samples")).to_have_count(0)  # it kept none


def test_who_is_in_the_samples_of_the_run(folder: Path, opened: Opened) -> None:
    page = opened()
    page.locator(".choice select").select_option(label="replay_merge, seed 41")
    charts = page.locator('[data-draw="items"] figure')
    expect(charts).to_have_count(2)
    charts.first.locator("svg").focus()
    page.keyboard.press("ArrowRight")
    expect(charts.first.locator(".reading")).to_have_text(
        "before task 2: right 75.0% · chimeras 25.0% · other 0.0%"
    )
    ages = analyse(read_study(folder)).tables["samples_by_age"].set_index("age")["share"]
    charts.nth(1).locator("svg").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(charts.nth(1).locator(".reading")).to_have_text(f"age 1: samples {100 * ages[1]:.1f}%")
    page.locator(".choice select").select_option(label="merge, seed 41")
    expect(charts).to_have_count(0)


def test_tables_by_age_and_rehearsal_stand_without_a_script(folder: Path, page_file: Path) -> None:
    page = Read(page_file.read_text("utf-8"))
    groups = analyse(read_study(folder)).tables["items"].query("by == 'age'")
    own = groups[groups["method"] == "merge"]
    assert ["Method", *own["group"]] in page.rows
    assert ["merge", *(f"{100 * share:.1f}" for share in own["recalled"])] in page.rows


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone_and_print(opened: Opened, scheme: str) -> None:
    page = opened(width=390, scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    page.emulate_media(media="print")
    expect(page.get_by_role("searchbox")).to_be_hidden()
    expect(page.locator(".items tbody tr").last).to_be_visible()
    assert page.locator(".scroll.items").evaluate("e => e.scrollHeight <= e.clientHeight")


def learned_from(run: Path, stream: Path) -> None:
    """Let a run have learned another stream."""
    config = json.loads((run / "config.json").read_text())["config"]
    change(run, config=config | {"stream": {"name": str(stream)}})


def test_texts_of_items_are_only_text(tmp_path: Path, opened: Opened) -> None:
    write_kept(tmp_path / "run", "merge", 41, 3)
    facts = tmp_path / "facts.jsonl"
    lines = [
        {"task": str(task), "question": f"{HOSTILE}{task}{item}", "answer": HOSTILE}
        for task in range(3)
        for item in range(ITEMS)
    ]
    facts.write_text("".join(json.dumps(line) + "\n" for line in lines))
    learned_from(tmp_path / "run", facts)
    study = read_study(tmp_path / "run")
    page = opened(write_page(study, analyse(study), tmp_path / "page.html"))
    page.locator(".items .pick").nth(3).click()
    page.locator(".lifemap").hover()
    assert page.locator(".detail .answer").text_content() == HOSTILE
    assert page.evaluate("window.ran") is None and page.locator("img").count() == 0


def test_a_run_whose_stream_is_gone_is_named(folder: Path, tmp_path: Path) -> None:
    write_kept(tmp_path / "run", "merge", 41, 3)
    learned_from(tmp_path / "run", tmp_path / "gone.jsonl")
    study = read_study(tmp_path / "run")
    analysis = analyse(study)
    assert "gone.jsonl" in analysis.absent["items"]
    page = write_page(study, analysis, tmp_path / "page.html").read_text("utf-8")
    assert "gone.jsonl" in page and 'data-draw="items"' not in page
