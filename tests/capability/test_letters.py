"""Letter likelihoods are those of the plain forward; the published files mean what they say."""

from __future__ import annotations

import csv
import math
from types import SimpleNamespace

import pytest
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from holdfast.backbone.generation.steps import can_cache
from holdfast.capability import files
from holdfast.capability.letters import (
    EXAMPLES,
    LetterChoice,
    letter_tokens,
    next_token_log_probabilities,
    question,
)
from holdfast.capability.problems import mmlu, mmlu_redux
from holdfast.capability.suite import Problem
from holdfast.core.errors import HoldfastError
from tests.tiny import exact_backbone, exact_gpt2

HEADER = ["question", "choices", "answer", "error_type", "source", "correct_answer", "reason"]
SOUP = ["hot", "cold", "None", "a 'mild', one"]


def write_redux(root, *rows, subject="cooking"):
    path = root / "capability" / "mmlu_redux" / "mini_mmlu_fixed_csv" / subject / "test.csv"
    path.parent.mkdir(parents=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([HEADER, *rows])
    return path


def row(answer=0, kind="ok", corrected="", text="How is soup?", choices=SOUP):
    return [text, str(choices), answer, kind, "", corrected, ""]


ROWS = (
    row(2),
    row(0, "wrong_groundtruth", "B"),
    row(0, "wrong_groundtruth", "3"),
    row(1, "wrong_groundtruth", "2.0"),
    row(1, "wrong_groundtruth", "cold"),
    row(0, "multiple_correct_answers", "A, C"),
    row(3, "no_correct_answer"),
    row(1, "ok", "0"),
)


@pytest.mark.parametrize(
    ("errors", "answers"),
    [
        ("drop", {0: "C", 7: "B"}),
        ("keep", {0: "C", 1: "A", 2: "A", 3: "B", 4: "B", 5: "A", 6: "D", 7: "B"}),
        ("correct", {0: "C", 1: "B", 2: "D", 3: "C", 4: "B", 7: "B"}),
    ],
)
def test_bad_items_are_handled_as_asked_and_keep_their_ids(tmp_path, errors, answers):
    write_redux(tmp_path, *ROWS)
    items = mmlu_redux(tmp_path, errors)
    assert {item.id: item.target for item in items} == {
        f"mmlu_redux/cooking/{number}": letter for number, letter in answers.items()
    }
    assert items[0].details == {"choices": SOUP} and items[0].group == "cooking"


def test_a_row_over_several_lines_is_one_question(tmp_path):
    write_redux(tmp_path, row(0, text="First line,\nsecond line?"), row(1))
    assert mmlu_redux(tmp_path, "drop")[0].prompt == "First line,\nsecond line?"


def test_a_mark_at_the_beginning_and_empty_lines_change_nothing(tmp_path):
    path = write_redux(tmp_path, *ROWS)
    plain = mmlu_redux(tmp_path, "keep")
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\r\n", b"\n\n") + b"\n")
    assert mmlu_redux(tmp_path, "keep") == plain


@pytest.mark.parametrize(
    "bad",
    [
        row(4),
        row("B"),
        row(choices=["one", "two", "three", 4]),
        ["a call", "print(1)", 0, "ok", "", "", ""],
        ["short"],
    ],
)
def test_a_damaged_row_is_named(tmp_path, bad):
    write_redux(tmp_path, row(), bad)
    with pytest.raises(HoldfastError, match=r"test\.csv line 3: is no question of mmlu_redux"):
        mmlu_redux(tmp_path, "drop")


def test_a_missing_column_and_a_missing_folder_are_named(tmp_path):
    path = write_redux(tmp_path, row())
    path.write_text(path.read_text().replace("error_type", "kind"))
    with pytest.raises(
        HoldfastError,
        match=r"test\.csv line 2: is no question of mmlu_redux \(KeyError: 'error_type'",
    ):
        mmlu_redux(tmp_path, "drop")
    with pytest.raises(HoldfastError, match="mini_mmlu_fixed_csv is not there; give --data-root"):
        mmlu_redux(tmp_path / "elsewhere", "drop")


def test_the_plain_file_has_no_header_and_none_is_a_choice(tmp_path):
    path = tmp_path / "mmlu" / "data" / "test" / "odd_things_test.csv"
    path.parent.mkdir(parents=True)
    path.write_text('"Which, if any?",None,NaN,,4,C\nNext?,1,2,3,4,A\n')
    first, second = mmlu(tmp_path)
    assert (first.prompt, first.target) == ("Which, if any?", "C")
    assert first.details == {"choices": ["None", "NaN", "", "4"]}
    assert (second.id, second.group, second.target) == ("mmlu/odd_things/1", "odd_things", "A")
    path.write_text("Next?,1,2,3,4,AB\n")
    with pytest.raises(HoldfastError, match="line 1: is no question of mmlu"):
        mmlu(tmp_path)


def test_the_published_files_are_read_whole(real_data):
    kept = mmlu_redux(real_data, "keep")
    clean = mmlu_redux(real_data, "drop")
    corrected = mmlu_redux(real_data, "correct")
    assert (len(kept), len(clean)) == (2400, 2159)
    assert len(clean) < len(corrected) < len(kept)
    assert len({item.id for item in kept}) == 2400 and len({item.group for item in kept}) == 24
    every = mmlu(real_data)
    assert (len(every), len({item.group for item in every})) == (14042, 57)
    assert sum(item.details["choices"].count("None") for item in every) == 10


@pytest.fixture
def hub(monkeypatch):
    """Stands in for the `datasets` library: what was asked of it, and its answers by name."""
    asked, rows = [], {}

    def load_dataset(path, config, split):
        asked.append((path, config, split))
        return rows[config]

    library = SimpleNamespace(
        load_dataset=load_dataset, get_dataset_config_names=lambda path: list(rows)
    )
    monkeypatch.setattr(files, "library", lambda: library)
    return asked, rows


def test_the_hub_gives_the_items_of_the_files(tmp_path, hub):
    asked, rows = hub
    write_redux(tmp_path, *ROWS)
    named = [dict(zip(HEADER, one, strict=True)) | {"choices": SOUP} for one in ROWS]
    rows["cooking"] = named
    for errors in ("drop", "keep", "correct"):
        assert mmlu_redux(None, errors) == mmlu_redux(tmp_path, errors)
    assert asked[0][1:] == ("cooking", "test")


def test_the_hub_counts_the_questions_of_each_subject(hub):
    asked, rows = hub
    rows["all"] = [
        {"question": "How?", "subject": subject, "choices": SOUP, "answer": answer}
        for subject, answer in (("art", 0), ("law", 3), ("art", 2))
    ]
    found = {item.id: (item.group, item.target) for item in mmlu(None)}
    assert found == {
        "mmlu/art/0": ("art", "A"),
        "mmlu/law/0": ("law", "D"),
        "mmlu/art/1": ("art", "C"),
    }
    assert asked[0][1:] == ("all", "test")


def test_the_prompt_is_two_examples_and_the_question():
    item = Problem("1", "", "How is soup?", "C", {"choices": SOUP})
    assert question(item) == (
        "Question: How is soup?\nA. hot\nB. cold\nC. None\nD. a 'mild', one\nAnswer:"
    )
    assert len(EXAMPLES) == 2
    assert all(one.startswith("Question: ") and "\nAnswer: " in one for one in EXAMPLES)


PROMPTS = [[5, 6, 7, 8, 9], [5, 6, 7, 1], [5, 6, 7, 1, 2, 3, 4, 30], [5, 6, 7], [5, 6, 7, 8, 9]]


@pytest.mark.parametrize("backbone", [exact_backbone(), exact_gpt2()], ids=["llama", "gpt2"])
@pytest.mark.parametrize("tokens_per_batch", [1, 12, 8192])
def test_the_shared_beginning_computed_once_gives_the_plain_forward(backbone, tokens_per_batch):
    candidates = [3, 40, 11]
    found = dict(next_token_log_probabilities(backbone, PROMPTS, candidates, tokens_per_batch))
    assert sorted(found) == list(range(len(PROMPTS)))
    for place, prompt in enumerate(PROMPTS):
        with torch.no_grad():
            logits = backbone.model(torch.tensor([prompt])).logits[0, -1]
        plain = (logits - logits.exp().sum().log())[candidates]
        torch.testing.assert_close(
            torch.tensor(found[place], dtype=torch.float64), plain, rtol=1e-12, atol=1e-12
        )


def test_the_shared_beginning_is_computed_once(monkeypatch):
    backbone = exact_backbone()
    assert can_cache(backbone)  # tries it, once
    widths = []
    forward = backbone.model.base_model.forward

    def counting(*args, **kwargs):
        widths.append(tuple(kwargs["input_ids"].shape))
        return forward(*args, **kwargs)

    monkeypatch.setattr(backbone.model.base_model, "forward", counting)
    list(next_token_log_probabilities(backbone, [PROMPTS[0], PROMPTS[1]], [3], 8192))
    assert widths == [(1, 3), (2, 2)]


def test_letters_that_begin_alike_are_refused():
    backbone = exact_backbone()  # a token a byte: all four begin with the space
    with pytest.raises(HoldfastError, match="does not tell") as refused:
        LetterChoice().check(backbone)
    assert "\n" not in str(refused.value)
    backbone.tokenizer.add_tokens([" A", " B", " C", " D"])
    first = len(backbone.tokenizer) - 4
    assert letter_tokens(backbone) == list(range(first, first + 4))


def test_a_model_without_numbers_is_refused():
    backbone = exact_backbone()
    backbone.head.weight.data.fill_(math.nan)
    with pytest.raises(HoldfastError, match="not numbers"):
        list(next_token_log_probabilities(backbone, PROMPTS, [3, 40]))


@pytest.mark.parametrize("kind", ["space before a word", "space before any text", "bytes"])
def test_the_letters_token_is_the_one_that_follows_the_prompt(kind):
    """The first two as SentencePiece has them, of newer and of older models."""
    words = ["▁", ":", *"ABCD", "▁A", "▁B", "▁C", "▁D", "▁Answer"]
    tokenizer = Tokenizer(models.Unigram([(word, -len(word) / 9) for word in ["?", *words]], 0))
    if kind == "space before a word":
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    elif kind == "space before any text":
        marks = normalizers.Replace(" ", "▁")
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), marks])
    else:
        ordered = {"Answer:": 0} | {f"Ġ{letter}": n for n, letter in enumerate("ABCD", 1)}
        tokenizer = Tokenizer(models.WordLevel(ordered, "Answer:"))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)

    def tokenize(text):
        return tokenizer.encode(text, add_special_tokens=False).ids

    found = [
        tokenizer.id_to_token(token) for token in letter_tokens(SimpleNamespace(tokenize=tokenize))
    ]
    mark = "Ġ" if kind == "bytes" else "▁"
    assert found == [f"{mark}{letter}" for letter in "ABCD"]


@pytest.mark.parametrize("opened", [False, True], ids=["", "with the replay token"])
def test_every_item_gets_the_likeliest_letter(monkeypatch, opened):
    backbone = exact_backbone()
    if opened:
        backbone.add_replay_token()
    opening = [len(backbone.tokenizer) - 1] if opened else []
    room = 180 - len(opening)
    letters = dict(zip("ABCD", (70, 80, 90, 100), strict=True))
    tokenize = backbone.tokenize
    monkeypatch.setattr(
        backbone, "tokenize", lambda text: [letters[text[1]]] if len(text) == 2 else tokenize(text)
    )
    backbone.model.config.max_position_embeddings = 180
    short = Problem("short", "g", "Soup?", "C", {"choices": ["a", "b", "c", "d"]})
    long = Problem("long", "g", "Soup? " * 40, "C", {"choices": ["a", "b", "c", "d"]})
    samples = {one.id: one for one in LetterChoice().answer(backbone, [short, long])}
    # Both examples are 200 bytes: one is left out for the short question, both for the long one,
    # which is too long even so.
    assert (samples["short"].details["examples"], samples["short"].details["lost_tokens"]) == (1, 0)
    assert samples["short"].prompt == EXAMPLES[1] + question(short)
    assert samples["long"].details["examples"] == 0
    assert samples["long"].details["lost_tokens"] == len(question(long)) - room
    for item in (short, long):
        sample = samples[item.id]
        ids = opening + tokenize(sample.prompt)[-room:]
        with torch.no_grad():
            plain = backbone.model(torch.tensor([ids])).logits[0, -1].log_softmax(-1)
        expected = {letter: float(plain[token]) for letter, token in letters.items()}
        assert sample.details["log_probabilities"] == pytest.approx(expected, abs=1e-12)
        assert sample.extracted == max(expected, key=expected.__getitem__)
        assert sample.correct == (sample.extracted == "C") and sample.output == ""
