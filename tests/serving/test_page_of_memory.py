"""The page of a served memory in a real browser, which can reach nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from holdfast import Memory
from tests.serving.chat_memories import FACTS, LATER, MORE, NEW, UNTAUGHT, copied, tasks
from tests.serving.served import serving

# A lesson that is still learned when a slow machine's browser has drawn its row.
LONG = [(f"Who tends garden {number} of Ostra?", f"Gardener {number}") for number in range(60)]
SCRIPT = "<img src=x onerror='window.ran = true'><script>window.ran = true</script>"


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page; afterwards it must have run nothing strange and complained of nothing."""
    context = browser.new_context(viewport={"width": 900, "height": 1400})
    page = context.new_page()
    page.set_default_timeout(60_000)
    complaints: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    yield page
    assert page.evaluate("window.ran") is None
    here = page.url.partition("#")[0]
    assert all(url.startswith((here, "data:")) for url in asked), asked
    assert [line for line in complaints if "Failed to load resource" not in line] == []
    context.close()


def ask(page: Page, question: str) -> None:
    page.get_by_label("Question", exact=True).fill(question)
    page.keyboard.press("Enter")


def teach(page: Page, question: str, answer: str) -> None:
    page.get_by_label("Question to learn").fill(question)
    page.get_by_label("Its answer").fill(answer)
    page.get_by_role("button", name="Teach").click()


def test_ask_teach_and_look(page: Page, directory: Path) -> None:
    with serving(directory, "--teach") as server:
        page.goto(server.url)
        expect(page.locator("#count")).to_have_text("3 of 3 facts from the weights, newest first")
        page.get_by_label("Question", exact=True).fill(FACTS[0][0])
        page.get_by_role("button", name="Ask").click()
        expect(page.locator("#answer p").first).to_have_text(FACTS[0][1])
        expect(page.locator("#answer p").nth(1)).to_have_text("From the weights.")
        ask(page, f"It is late. {FACTS[0][0]} Thank you.")
        text = f"From the weights. Taught: {FACTS[0][0]}"
        expect(page.locator("#answer p").nth(1)).to_have_text(text)
        ask(page, UNTAUGHT)
        text = "The model's own answer; it was not taught that."
        expect(page.locator("#answer p").nth(1)).to_have_text(text)
        # While that answer is written another question takes its place.
        ask(page, FACTS[2][0])
        expect(page.locator("#answer p").first).to_have_text(FACTS[2][1])
        teach(page, FACTS[1][0], MORE[0][1])
        expect(page.locator("#lesson")).to_contain_text("Lesson 2")
        expect(page.locator("#lesson")).to_contain_text("Learned.", timeout=180_000)
        corrected = f"Corrected: it is “{MORE[0][1]}”, was “{FACTS[1][1]}”."
        expect(page.locator("#lesson")).to_contain_text(corrected)
        expect(page.locator("#facts tbody tr").first).to_contain_text("lesson 2")
        teach(page, FACTS[1][0].lower(), MORE[0][1])
        expect(page.locator("#lesson")).to_contain_text("Learned.", timeout=180_000)
        expect(page.locator("#lesson")).to_contain_text("differ in case or punctuation alone")
        ask(page, "Who keeps the goats of Velm now?")
        page.locator("#answer").get_by_role("button", name=FACTS[0][0]).click()
        expect(page.locator("#answer p").first).to_have_text(FACTS[0][1])
        server.process.kill()
        expect(page.locator("#state")).to_have_text("The server does not answer.", timeout=10_000)


def test_lessons_are_followed_and_cancelled(page: Page, directory: Path) -> None:
    """While they wait, and while one is learned; one's own is followed to its new number."""
    with serving(directory, "--teach") as server:
        assert server.post("/facts", tasks(LONG, LATER, MORE))[0] == 202
        page.goto(server.url)
        lesson = page.locator("#lesson")
        queue = page.get_by_label("Lessons that are not learned yet")
        expect(queue.locator("li")).to_have_count(3)
        expect(queue.locator("li").nth(2)).to_contain_text("Lesson 4, 2 facts, waits")
        queue.get_by_role("button", name="Cancel lesson 4").click()
        expect(lesson).to_have_text("Lesson 4 is cancelled.")
        expect(queue.locator("li")).to_have_count(2)
        teach(page, NEW[0][0], NEW[0][1])
        expect(lesson).to_contain_text("Lesson 4 waits")
        queue.get_by_role("button", name="Cancel lesson 3").click()
        expect(queue.locator("li")).to_have_count(2)  # its own has moved up
        queue.get_by_role("button", name="Cancel lesson 2").click()  # while it is learned
        expect(lesson).to_contain_text("Learned.", timeout=180_000)
        expect(queue).to_be_hidden()
        assert server.ask(NEW[0][0])["text"] == NEW[0][1]
        assert len(server.facts()["facts"]) == len(FACTS) + 1
        assert server.post("/facts", tasks(LONG))[0] == 202
        page.get_by_label("Question to learn").fill("Who?")
        page.get_by_label("Its answer").fill("Ann")
        page.keyboard.press("Enter")
        expect(lesson).to_contain_text("Lesson 4 waits")
        queue.get_by_role("button", name="Cancel lesson 4").click()
        expect(lesson).to_have_text(re.compile("lesson (. is|was) cancelled", re.IGNORECASE))
        expect(page.get_by_role("button", name="Teach")).to_be_enabled()


def test_facts_are_corrected_and_forgotten(page: Page, directory: Path) -> None:
    """By keys alone; to forget takes a second press, and leaving the button takes it back."""
    with serving(directory, "--teach") as server:
        page.goto(server.url)
        page.get_by_role("button", name=f"Correct: {FACTS[0][0]}").press("Enter")
        expect(page.get_by_label("Question to learn")).to_have_value(FACTS[0][0])
        expect(page.get_by_label("Its answer")).to_be_focused()
        page.keyboard.type("Ann Tern")
        expect(page.get_by_label("Its answer")).to_have_value("Ann Tern")
        button = page.get_by_role("button", name=f"Forget: {FACTS[1][0]}")
        button.press("Enter")
        expect(button).to_have_text("For good?")
        page.keyboard.press("Tab")
        expect(button).to_have_text("Forget")
        button.press("Enter")
        button.press("Enter")
        message = f"Forgotten: {FACTS[1][0]} 2 of 2 other facts of its lessons learned again."
        expect(page.locator("#lesson")).to_have_text(message, timeout=60_000)
        expect(page.locator("#facts tbody tr")).to_have_count(2)
        expect(button).to_have_count(0)
        assert server.ask(FACTS[1][0])["holdfast"]["source"] == "model"
        assert FACTS[1][0] not in (directory / "facts.jsonl").read_text()
        # An answer of several lines stays one.
        lines = {"question": "What is\nthe script?", "answer": "set -e\nmake"}
        assert server.post("/facts", lines)[0] == 202
        page.reload()
        page.get_by_role("button", name="Correct: What is the script?").click()
        expect(page.get_by_label("Question to learn")).to_have_value(lines["question"])
        expect(page.get_by_label("Its answer")).to_have_value(lines["answer"])
        page.get_by_label("Its answer").press("Control+End")
        page.keyboard.type(" all")
        page.keyboard.press("Shift+Enter")
        page.keyboard.type("true")
        page.keyboard.press("Enter")
        expect(page.locator("#lesson")).to_contain_text("Corrected: ")
        assert server.ask("What is the script?")["text"] == "set -e\nmake all\ntrue"


def test_everything_fits_a_phone(page: Page, directory: Path) -> None:
    """Long words too: no button is cut off, and nothing scrolls sideways."""
    long = [
        ("What is the main ingredient of Goosegrass-and-Watercress Fritterlings?", "cracked wheat"),
        ("Wie heißt die Donaudampfschifffahrtsgesellschaft?", "Rindfleischetikettierung " * 2),
        (f"Who has the key {'0123456789abcdef' * 4}?", "0123456789abcdef" * 4),
    ]
    Memory(directory).write_facts(long)
    page.set_viewport_size({"width": 375, "height": 667})
    with serving(directory, "--teach") as server:
        page.goto(server.url)
        expect(page.locator("#facts tbody tr")).to_have_count(len(FACTS) + len(long))
        buttons = page.locator("#facts").get_by_role("button")
        expect(buttons).to_have_count(2 * (len(FACTS) + len(long)))
        for button in [*buttons.all(), *page.locator("form:visible button").all()]:
            box = button.bounding_box()
            assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= 375
        region = page.get_by_role("region", name="Facts")
        assert region.evaluate("one => one.scrollWidth - one.clientWidth") == 0
        assert page.evaluate("document.documentElement.scrollWidth") == 375


def test_a_key_and_that_nothing_taught_can_run(
    page: Page, chat_memory: Path, tmp_path: Path
) -> None:
    place = copied(chat_memory, tmp_path / "<i>m")
    Memory(place).write_facts([(f"{SCRIPT} {i}?", SCRIPT) for i in range(12)])
    with serving(place, HOLDFAST_API_KEY="mine") as server:
        page.goto(server.url)
        page.get_by_label("API key").fill("mine")
        page.get_by_role("button", name="Open").click()
        expect(page.locator("h1")).to_have_text("<i>m")
        expect(page.locator("#facts tbody tr")).to_have_count(15)
        expect(page.locator("#facts tbody tr").first).to_contain_text(SCRIPT)
        page.get_by_label("Show facts with these words").fill("11?")
        expect(page.locator("#facts tbody tr")).to_have_count(1)
        expect(page.locator("#teaching")).to_be_hidden()
        page.get_by_label("Question", exact=True).fill(SCRIPT)
        page.get_by_role("button", name="Ask").click()
        expect(page.locator("#answer .said")).to_have_count(1)
        page.get_by_label("Show facts with these words").fill("")
        # A key is taken out of the address, and the tab keeps it.
        page.goto(f"{server.url}/#key=other")
        expect(page.locator("#state")).to_have_text("the API key is missing or wrong")
        page.goto(f"{server.url}/#key=mine")
        expect(page.locator("#facts tbody tr")).to_have_count(15)
        expect(page).to_have_url(f"{server.url}/")
        page.reload()
        expect(page.locator("#facts tbody tr")).to_have_count(15)
        server.process.kill()
        expect(page.locator("#state")).to_have_text("The server does not answer.", timeout=10_000)
        page.get_by_label("Show facts with these words").fill("11?")
