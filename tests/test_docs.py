"""The examples of the documentation, done as a reader would do them."""

from __future__ import annotations

import inspect
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from holdfast.cli.main import app
from holdfast.core.config import sha256_of

ROOT = Path(__file__).resolve().parents[1]
ADD_AN_ANCHOR = ROOT / "docs" / "how-to" / "add-an-anchor.md"
PLUGIN = ROOT / "examples" / "plugin"
PLUGIN_PAGES = [ROOT / "docs" / "how-to" / f"add-a-{name}.md" for name in ("rule", "stream")]
SHOWN = {".py", ".toml", ".md", ".yaml"}
README = ROOT / "README.md"
DESCRIPTION = json.dumps(
    {
        "config": {},
        "identity": sha256_of({}),
        "numbers": {},
        "versions": {},
        "backbone": {"name": "embedded", "fingerprint": ""},
        "stream": {"name": "symbol_qa", "tasks": 3, "fingerprint": ""},
    }
)
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
    said = []
    for line in lines:
        words = shlex.split(line, comments=True)[1:]
        if words != ["ask", "memory"]:  # a conversation: tests/cli/test_chat_conversation.py
            said.append(CliRunner().invoke(app, words))
    learned, other_words, own, only, more = said
    assert learned.stdout.startswith("lesson 1: 1 of 1 facts answered from the weights")
    assert (other_words.exit_code, other_words.stdout) == (0, "Orsa Tindle\n")
    assert (own.exit_code, own.stdout) == (0, "The capital of France is Paris.\n")
    assert "the model's own answer" in own.stderr
    assert (only.exit_code, only.stdout) == (3, "")
    assert "it was not taught that" in only.stderr
    assert "2 facts on file" in more.stdout


def python_in(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=site,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(site), str(ROOT)])},
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_the_anchor_of_the_page_passes_the_tests_of_the_page(tethered: Path) -> None:
    settings = ["-p", "no:cacheprovider", "--rootdir", ".", "-q"]
    done = python_in(tethered, "-m", "pytest", *settings, "test_tether.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 passed" in done.stdout


def test_the_commands_of_the_page_learn_with_the_anchor_and_without(tethered: Path) -> None:
    commands = re.findall(r"```console\n(.*?)\n```", ADD_AN_ANCHOR.read_text("utf-8"), re.DOTALL)
    assert [command.split()[1] for command in commands] == ["run", "check-plugin", "run"]
    places = [command.split()[-1] for command in commands if "run" in command]
    # In one process, which loads torch once.
    lines = ["import contextlib", "from holdfast.cli.main import app"]
    for command in commands:
        lines.append(f"with contextlib.suppress(SystemExit): app({command.split()[1:]})")
    done = python_in(tethered, "-c", "\n".join(lines))
    assert done.returncode == 0, done.stderr
    told = ADD_AN_ANCHOR.read_text("utf-8").partition("```text\n")[2].partition("```")[0]
    assert told in done.stdout
    held, free = (losses_of_the_last_task(tethered / place) for place in places)
    assert held["tether"] > 0
    assert held["sft"] != free["sft"]


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository of the examples, installed in a folder of its own."""
    site = tmp_path_factory.mktemp("plugin")
    names = [path.relative_to(PLUGIN) for path in PLUGIN.rglob("*") if path.suffix in SHOWN]
    install({str(name): (PLUGIN / name).read_text("utf-8") for name in names}, site)
    return site


def test_the_pages_show_the_files_of_the_example() -> None:
    anchor = files_in(ADD_AN_ANCHOR)
    shown = {
        "my_holdfast/tether.py": anchor["my_holdfast/tether.py"],
        "tests/test_tether.py": anchor["test_tether.py"],
        **files_in(PLUGIN_PAGES[0]),
        **files_in(PLUGIN_PAGES[1]),
    }
    assert shown == {name: (PLUGIN / name).read_text("utf-8") for name in shown}
    names = ("tether", "light", "sums")
    modules = {f"my_holdfast/{name}.py" for name in names}
    assert shown.keys() - modules == {"light.yaml", *(f"tests/test_{name}.py" for name in names)}
    project = (PLUGIN / "pyproject.toml").read_text("utf-8")
    for page in PLUGIN_PAGES:
        (points,) = re.findall(r"```text\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.M)
        assert points in project


def test_the_example_passes_its_own_tests(plugin: Path) -> None:
    settings = ["-p", "no:cacheprovider", "--rootdir", ".", "-q"]
    done = python_in(plugin, "-m", "pytest", *settings, "tests")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "9 passed" in done.stdout


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
    lines = ["from holdfast.cli.main import app"]
    for words in commands:
        lines += [f"try: app({words})", "except SystemExit as end: assert not end.code, end.code"]
    done = python_in(plugin, "-c", "\n".join(lines))
    assert done.returncode == 0, done.stderr
    assert "BROKEN" not in done.stdout and "sums, 20 tasks of 8 items" in done.stdout
    assert losses_of_the_last_task(plugin / "runs" / "both")["tether"] > 0
    assert (plugin / "runs" / "light" / "matrix.csv").exists()


def test_an_error_in_a_source_names_its_file_and_line(plugin: Path) -> None:
    words = "['run', 'demo', 'stream.name=sums', 'stream.tasks=9000', '--dry-run']"
    code = f"from holdfast.cli.main import app; app({words})"
    done = python_in(plugin, "-c", code)
    assert done.returncode != 0
    assert (
        "the fault of the plug-in my_holdfast (" in done.stderr and "sums.py line " in done.stderr
    )


def losses_of_the_last_task(run: Path) -> dict[str, float]:
    """The losses of the last epoch of a run's last task."""
    events = [json.loads(line) for line in (run / "log.jsonl").read_text("utf-8").splitlines()]
    tasks = [event for event in events if event["event"] == "task"]
    last: dict[str, float] = tasks[-1]["losses"][-1]
    return last


def test_the_examples_of_the_tutorial_print_what_it_says(tmp_path: Path) -> None:
    page = TUTORIAL.read_text("utf-8")
    for name, text in files_in(TUTORIAL).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    (tmp_path / "runs" / "example" / "config.json").write_text(DESCRIPTION)
    block = r"```{}\n(.*?)^```\n"
    pattern = "<!-- example -->\n" + block.format("python")
    pattern += r"\n<!-- prints -->\n" + block.format("text")
    examples = re.findall(pattern, page, re.DOTALL | re.MULTILINE)
    assert len(examples) == page.count("<!-- example -->") == 2
    for code, printed in examples:
        done = python_in(tmp_path, "-c", code)
        assert done.returncode == 0, done.stderr
        assert done.stdout == printed


def test_the_configuration_of_the_tutorial_learns_its_facts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast import RunConfig, Trajectory

    for name in ("facts.jsonl", "facts.yaml"):
        (tmp_path / name).write_text(files_in(TUTORIAL)[name], "utf-8")
    monkeypatch.chdir(tmp_path)
    config = RunConfig.of(yaml.safe_load(Path("facts.yaml").read_text("utf-8")))
    trajectory = Trajectory(config, "runs/facts")
    trajectory.advance()
    assert trajectory.metrics()["diag"] == 1


def test_the_readme_can_be_followed_from_the_top() -> None:
    """The demo leaves its runs where no other command of the page wants to begin one."""
    from holdfast.cli import demo

    default = inspect.signature(demo.demo).parameters["out"].default
    assert f"`{default}`" in README.read_text("utf-8")
    assert f"--out {default}" not in README.read_text("utf-8")


def test_the_commands_of_the_first_page_on_streams_do_what_it_says(tmp_path: Path) -> None:
    first_part = OWN_STREAM.read_text("utf-8").partition("## From a table")[0]
    (tmp_path / "facts.jsonl").write_text(files_in(OWN_STREAM)["facts.jsonl"], "utf-8")
    blocks = re.findall(r"```console\n(.*?)^```", first_part, re.DOTALL | re.MULTILINE)
    commands = [line.split() for block in blocks for line in block.splitlines()]
    assert [command[1] for command in commands] == ["stream", "run"]
    outputs = []
    for _, *arguments in commands:
        done = python_in(tmp_path, "-c", "from holdfast.cli.main import app; app()", *arguments)
        assert done.returncode == 0, done.stderr
        outputs.append(done.stdout)
    assert "facts, 2 tasks of 3 items, 6 in all" in outputs[0]
    assert (tmp_path / "runs" / "facts" / "matrix.csv").exists()


def test_the_links_of_the_root_pages_lead_somewhere() -> None:
    for page in ROOT.glob("*.md"):
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
            assert (ROOT / target).exists(), f"{page.name} links to {target}"
