"""Bits per byte is what a plain loop over tokens gives; the texts are the ones that are meant."""

from __future__ import annotations

import gzip
import math

import pytest
import torch

from holdfast.capability.text import HELD_OUT_TITLES, Text, held_out_passages
from holdfast.evaluation.text import bits_per_byte, everyday_passages, lengths
from holdfast.model.backbone import Backbone
from tests.refused import line_of
from tests.tiny import byte_tokenizer, exact_backbone, exact_gpt2, tiny_gemma_of_images

TEXTS = ["A bird sat on the fence and sang — twice.", "é", "", "Rain."]


def plain_bits(backbone, text, window):
    """One forward a token. Windows end half a window apart; a token belongs to the first."""
    tokens = [backbone.eos_token, *backbone.tokenize(text)]
    total, end = 0.0, min(window, len(tokens))
    for place in range(1, len(tokens)):
        if place >= end:
            end = min(end + window // 2, len(tokens))
        context = tokens[max(end - window, 0) : place]
        with torch.no_grad():
            logits = backbone.model(torch.tensor([context])).logits[0, -1]
        if backbone.seed_token is not None:
            logits[backbone.seed_token] = -torch.inf
        total -= float(logits.log_softmax(-1)[tokens[place]]) / math.log(2)
    return total


@pytest.mark.parametrize("window", [2, 7, 16, 512])
@pytest.mark.parametrize("kind", [exact_backbone, exact_gpt2])
def test_windows_in_batches_give_the_plain_loop(kind, window):
    backbone = kind()
    texts = [text for text in TEXTS if text]
    measured = lengths(backbone, texts, window)
    room = min(window, backbone.model.config.max_position_embeddings)
    for text, length in zip(texts, measured, strict=True):
        assert length.bits == pytest.approx(plain_bits(backbone, text, room), rel=1e-12)
        assert (length.bytes, length.tokens) == (len(text.encode()), len(backbone.tokenize(text)))
    size = sum(text.bytes for text in measured)
    assert bits_per_byte(measured) == sum(text.bits for text in measured) / size


def test_a_window_has_no_more_than_the_positions_of_a_text_configuration():
    backbone = Backbone(tiny_gemma_of_images(positions=8).double(), byte_tokenizer())
    assert lengths(backbone, TEXTS[:1], 512) == lengths(backbone, TEXTS[:1], 8)


def test_the_replay_token_takes_no_probability():
    backbone = exact_backbone()
    (before,) = lengths(backbone, TEXTS[:1])
    backbone.add_replay_token()
    (after,) = lengths(backbone, TEXTS[:1])
    plain = plain_bits(backbone, TEXTS[0], 512)
    assert after.bits == pytest.approx(before.bits, rel=1e-12) == pytest.approx(plain, rel=1e-12)


def test_without_a_beginning_the_first_token_costs_the_vocabulary():
    backbone = exact_backbone()
    backbone.eos_token = None
    backbone.tokenizer.eos_token = None
    whole, single = lengths(backbone, ["Rain.", "R"])
    assert single.bits == pytest.approx(math.log2(257), rel=1e-12)
    ids = torch.tensor([backbone.tokenize("Rain.")])
    with torch.no_grad():
        rows = backbone.model(ids).logits[0].log_softmax(-1)
    rest = sum(float(rows[place, ids[0, place + 1]]) for place in range(4))
    assert whole.bits == pytest.approx(math.log2(257) - rest / math.log(2), rel=1e-12)


def test_the_package_has_some_kilobytes_of_prose():
    passages = everyday_passages()
    assert len({passage.id for passage in passages}) == 10
    assert all(700 < len(passage.text) < 1100 for passage in passages)
    assert 8_000 < sum(len(passage.text.encode()) for passage in passages) < 10_000
    assert not any(passage.text.startswith("=") or "\n" in passage.text for passage in passages)


def test_a_sample_holds_what_the_score_is_made_of(tmp_path):
    backbone = exact_backbone()
    suite = Text()
    items = suite.items(None)[:3]
    counts = []
    samples = list(suite.answer(backbone, items, tmp_path, counts.append))
    assert counts == [3] and not any(tmp_path.iterdir())
    measured = lengths(backbone, [item.prompt for item in items])
    for sample, item, length in zip(samples, items, measured, strict=True):
        assert sample.details["bits"] == length.bits and item.prompt.startswith(sample.prompt)


def corpus(root, name, text):
    folder = root / "corpus"
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())


def test_only_the_held_out_titles_of_a_corpus_are_read(tmp_path):
    body = "\n\n".join(f"Paragraph {n} of what nobody has read. " * 10 for n in range(200))
    text = f"= Read before = A\n\nseen\n\n\n= {HELD_OUT_TITLES[1]} = B\n\n{body}\n\n\n"
    corpus(tmp_path, "novels.txt.gz", f"{text}= Read as well = C\n\nseen\n")
    passages = held_out_passages(tmp_path / "corpus")
    assert not any("seen" in passage.text or "=" in passage.text for passage in passages)
    assert passages[0].id == "corpus/the_warden/0"
    assert passages[0].text.startswith("Paragraph 0 of")
    total = sum(len(passage.text) for passage in passages)
    assert 32_000 < total < 33_500
    assert all(4_096 <= len(passage.text) < 4_600 for passage in passages[:-1])
    assert all(passage.text.endswith("read.") for passage in passages)


def test_of_a_corpus_without_headings_the_end_is_held_out(tmp_path):
    corpus(tmp_path, "plain.txt", "seen " * 10_000 + "\n\n" + "unseen " * 5_000)
    passages = held_out_passages(tmp_path / "corpus")
    joined = " ".join(passage.text for passage in passages)
    assert set(joined.split()[1:]) == {"unseen"} and len(joined) <= 32_768


def test_a_corpus_that_is_not_there_is_refused_in_one_line(tmp_path):
    items = Text("corpus").items
    for root in (None, tmp_path):
        assert "--data-root" in line_of(items, root)
    corpus(tmp_path, "novels.txt", "= Read before = A\n\nseen\n")
    assert "with a held-out text" in line_of(items, tmp_path)
    for torn in (b"\x1f\x8bnothing", gzip.compress(b"a text")[:10] + b"\xff" * 20):
        (tmp_path / "corpus" / "torn.txt.gz").write_bytes(torn)
        assert "torn.txt.gz: is no text" in line_of(items, tmp_path)


def test_line_ends_and_marks_of_other_systems_change_nothing(tmp_path):
    paragraphs = "\n\n".join(f"Paragraph {n}. " * 20 for n in range(300))
    same = []
    for name, text in (("novel", f"= {HELD_OUT_TITLES[0]} = B\n\n{paragraphs}"), ("p", paragraphs)):
        corpus(tmp_path, f"{name}.txt", text)
        plain = held_out_passages(tmp_path / "corpus")
        corpus(tmp_path, f"{name}.txt", "\ufeff" + text.replace("\n", "\r\n"))
        same.append(plain == held_out_passages(tmp_path / "corpus") and len(plain) > 7)
    assert same == [True, True]


def test_files_whose_names_begin_alike_are_told_apart(tmp_path):
    for name in ("notes.one.txt", "notes.two.txt.gz"):
        corpus(tmp_path, name, "Something to read.")
    ids = [passage.id for passage in held_out_passages(tmp_path / "corpus")]
    assert ids == ["corpus/notes_one/0", "corpus/notes_two/0"]


def test_a_text_without_tokens_and_a_model_without_numbers_are_refused():
    backbone = exact_backbone()
    assert "without tokens" in line_of(lengths, backbone, TEXTS)
    backbone.head.weight.data.fill_(math.nan)
    assert "not numbers" in line_of(lengths, backbone, TEXTS[:1])


def test_the_published_corpus_gives_what_the_embedded_model_has_not_read(real_data):
    ids = {item.id.split("/")[1] for item in Text("corpus").items(real_data)}
    assert ids == {"silas_marner_the_weaver_of_raveloe", "the_warden"}
