"""The examples of the documentation, done as a reader would do them."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from holdfast.cli.main import app
from holdfast.learning.config import RunConfig
from tests.forked import forked

ROOT = Path(__file__).resolve().parents[1]
ADD_AN_ANCHOR = ROOT / "docs" / "how-to" / "add-an-anchor.md"
PLUGIN = ROOT / "examples" / "plugin"
PLUGIN_PAGES = [ROOT / "docs" / "how-to" / f"add-a-{name}.md" for name in ("rule", "stream")]
SHOWN = {".py", ".toml", ".md", ".yaml"}
README = ROOT / "README.md"
TUTORIAL = ROOT / "docs" / "tutorial.md"
OWN_STREAM = ROOT / "docs" / "how-to" / "your-own-stream.md"


def files_in(page: Path) -> dict[str, str]:
    """The files that a page shows: each block after ``<!-- file: NAME -->``, by its name."""
    pattern = r"<!-- file: (\S+) -->\n```\w+\n(.*?)^```$"
    return dict(re.findall(pattern, page.read_text("utf-8"), re.DOTALL | re.MULTILINE))


def install(project: dict[str, str], site: Path) -> None:
    """Write a project's files to ``site``, and its metadata as an installer would."""
    for name, text in project.items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text, "utf-8")
    described = tomllib.loads(project["pyproject.toml"])["project"]
    metadata = site / f"{described['name']}-{described['version']}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {described['name']}\nVersion: {described['version']}\n"
    )
    points = ""
    for group, entries in described["entry-points"].items():
        points += f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in entries.items())
    (metadata / "entry_points.txt").write_text(points)


@pytest.fixture
def tethered(tmp_path: Path) -> Path:
    """The package of the page, installed in a folder of its own."""
    project = files_in(ADD_AN_ANCHOR)
    package = {"my_holdfast/tether.py", "pyproject.toml", "test_tether.py"}
    assert project.keys() == {*package, "tether.yaml"}
    install(project, tmp_path)
    return tmp_path


@pytest.mark.real
def test_the_memory_of_the_readme(
    smollm2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    section = README.read_text("utf-8").partition("## A memory of your own")[2]
    lines = section.partition("```console\n")[2].partition("```")[0].splitlines()
    assert len(lines) == 6 and all(line.startswith("holdfast ") for line in lines)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOLDFAST_MODEL")
    answers = []
    for line in lines:
        words = shlex.split(line, comments=True)[1:]
        if words != ["ask", "memory"]:  # a conversation: tests/cli/test_ask.py
            answers.append(CliRunner().invoke(app, words))
    learned, other_words, general, only, more = answers
    assert learned.stdout.startswith("lesson 1: 1 of 1 fact answered from the weights")
    assert (other_words.exit_code, other_words.stdout) == (0, "Orsa Tindle\n")
    assert (general.exit_code, general.stdout) == (0, "The capital of France is Paris.\n")
    assert "the model's own answer" in general.stderr
    assert (only.exit_code, only.stdout) == (3, "")
    assert "it was not taught that" in only.stderr
    assert "2 facts on file" in more.stdout


def holdfast_in(site: Path, *arguments: str) -> str:
    """What a command prints where the packages of a folder are installed; it must succeed."""
    status, out, err = forked(*arguments, cwd=site, path=[site])
    assert status == 0, err
    return out


def test_the_commands_of_the_page_learn_with_the_anchor_and_without(tethered: Path) -> None:
    commands = re.findall(r"```console\n(.*?)\n```", ADD_AN_ANCHOR.read_text("utf-8"), re.DOTALL)
    assert [command.split()[1] for command in commands] == ["run", "check-plugin", "run"]
    places = [command.split()[-1] for command in commands if "run" in command]
    output = "".join(holdfast_in(tethered, *command.split()[1:]) for command in commands)
    expected = ADD_AN_ANCHOR.read_text("utf-8").partition("```text\n")[2].partition("```")[0]
    assert expected in output
    tied, free = (losses_of_the_last_task(tethered / place) for place in places)
    assert tied["tether"] > 0
    assert tied["sft"] != free["sft"]


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository of the examples, installed in a folder of its own."""
    site = tmp_path_factory.mktemp("plugin")
    names = [path.relative_to(PLUGIN) for path in PLUGIN.rglob("*") if path.suffix in SHOWN]
    install({str(name): (PLUGIN / name).read_text("utf-8") for name in names}, site)
    return site


def test_the_pages_show_the_files_of_the_example() -> None:
    anchor = files_in(ADD_AN_ANCHOR)
    files = {
        "my_holdfast/tether.py": anchor["my_holdfast/tether.py"],
        "tests/test_tether.py": anchor["test_tether.py"],
        **files_in(PLUGIN_PAGES[0]),
        **files_in(PLUGIN_PAGES[1]),
    }
    assert files == {name: (PLUGIN / name).read_text("utf-8") for name in files}
    names = ("tether", "light", "sums")
    modules = {f"my_holdfast/{name}.py" for name in names}
    assert files.keys() - modules == {"light.yaml", *(f"tests/test_{name}.py" for name in names)}
    project = (PLUGIN / "pyproject.toml").read_text("utf-8")
    for page in PLUGIN_PAGES:
        (points,) = re.findall(r"```text\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.M)
        assert points in project


def test_the_example_passes_its_own_tests(plugin: Path) -> None:
    settings = ["-p", "no:cacheprovider", "--rootdir", ".", "-q"]
    status, out, err = forked(*settings, "tests", module="pytest", cwd=plugin, path=[plugin])
    assert status == 0, out + err
    assert "9 passed" in out


def test_the_commands_of_rule_and_stream_do_what_the_pages_say(plugin: Path) -> None:
    text = "".join(page.read_text("utf-8") for page in (*PLUGIN_PAGES, PLUGIN / "README.md"))
    blocks = re.findall(r"```console\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    commands = [line.split()[1:] for block in blocks for line in block.splitlines()]
    commands = [
        words for words in commands if words and words[0] in ("run", "stream", "check-plugin")
    ]
    places = [words[-1] for words in commands if "--out" in words]
    assert len(commands) == 7 and len(places) == 3
    commands[-1][-1] = "runs/both"  # the README's run has a name that a page has too
    different = dict.fromkeys(tuple(words) for words in commands)  # the README repeats some
    brief = (
        "--tasks", "2", "stream.items_per_task=4", "optim.epochs=2", "sampling.samples=16",
        "sampling.max_new_tokens=16", "evaluation.max_new_tokens=8",
    )  # fmt: skip
    output = "".join(
        holdfast_in(plugin, *words, *(brief if words[0] == "run" else ())) for words in different
    )
    assert "BROKEN" not in output and "sums, 20 tasks of 8 items" in output
    assert losses_of_the_last_task(plugin / "runs" / "both")["tether"] > 0
    assert (plugin / "runs" / "light" / "matrix.csv").exists()


def test_an_error_in_a_source_names_its_file_and_line(plugin: Path) -> None:
    words = ["run", "demo", "stream.name=sums", "stream.tasks=9000", "--dry-run"]
    status, _, err = forked(*words, cwd=plugin, path=[plugin])
    assert status != 0
    assert "the fault of the plug-in my_holdfast (" in err and "sums.py line " in err


def losses_of_the_last_task(run: Path) -> dict[str, float]:
    """The losses of the last epoch of a run's last task."""
    events = [json.loads(line) for line in (run / "log.jsonl").read_text("utf-8").splitlines()]
    tasks = [event for event in events if event["event"] == "task"]
    last: dict[str, float] = tasks[-1]["losses"][-1]
    return last


def test_the_configuration_of_the_tutorial_learns_its_facts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast import RunConfig, Trajectory

    for name in ("facts.jsonl", "facts.yaml"):
        (tmp_path / name).write_text(files_in(TUTORIAL)[name], "utf-8")
    monkeypatch.chdir(tmp_path)
    short = ["sampling.samples=24", "sampling.max_new_tokens=48", "evaluation.max_new_tokens=24"]
    config = RunConfig.of(yaml.safe_load(Path("facts.yaml").read_text("utf-8")), short)
    trajectory = Trajectory(config, "runs/facts")
    trajectory.advance()
    assert trajectory.metrics()["diag"] == 1


def test_the_commands_of_the_first_page_on_streams_do_what_it_says(tmp_path: Path) -> None:
    first_part = OWN_STREAM.read_text("utf-8").partition("## From a table")[0]
    (tmp_path / "facts.jsonl").write_text(files_in(OWN_STREAM)["facts.jsonl"], "utf-8")
    blocks = re.findall(r"```console\n(.*?)^```", first_part, re.DOTALL | re.MULTILINE)
    commands = [line.split() for block in blocks for line in block.splitlines()]
    assert [command[1] for command in commands] == ["stream", "run"]
    inspect, run = (arguments for _, *arguments in commands)
    assert "facts, 2 tasks of 3 items, 6 in all" in holdfast_in(tmp_path, *inspect)
    holdfast_in(tmp_path, *run, "--tasks", "1", "optim.epochs=2")
    assert (tmp_path / "runs" / "facts" / "matrix.csv").exists()


def test_the_links_of_the_root_pages_lead_somewhere() -> None:
    for page in ROOT.glob("*.md"):
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
            assert (ROOT / target).exists(), f"{page.name} links to {target}"


def test_the_table_of_other_libraries_names_settings_that_are_there() -> None:
    page = (ROOT / "docs" / "reference" / "configuration.md").read_text("utf-8")
    rows = re.findall(r"^\| `.*\| (.*) \|$", page, re.MULTILINE)
    settings = re.findall(r"`((?!https?)[\w.]+=[^`]+)`", "\n".join(rows))
    assert len(rows) >= 35 and len(settings) >= 35
    for setting in settings:
        RunConfig.of({}, [setting])  # refuses an unknown one
