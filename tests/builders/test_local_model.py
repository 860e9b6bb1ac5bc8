"""Completions of many prompts: each as if it were alone, whatever stands beside it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models
from torch import Tensor
from transformers import MistralConfig, MistralForCausalLM, PreTrainedTokenizerFast

from holdfast.builders import local_model
from holdfast.builders.local_model import BackboneModel, sample_completions
from holdfast.builders.text_model import Failure, Prompt, SamplingParameters
from holdfast.core.errors import HoldfastError
from holdfast.core.seeding import generator
from holdfast.model.backbone import Backbone
from holdfast.model.generation.decoding import CachedSteps
from holdfast.model.generation.sampling import nucleus_sample
from holdfast.model.load import load_backbone
from tests.tiny import END, ExactNorm, exact_backbone, exact_gpt2

TEMPLATE = (
    "{% for one in messages %}{{ one.role[0] }}>{{ one.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}a>{% endif %}"
)
FREE = SamplingParameters(samples=3, temperature=1.1, top_p=0.9, max_new_tokens=9, seed=4)


def spelling() -> PreTrainedTokenizerFast:
    """257 tokens, each another character but for the end: two texts are never alike by chance."""
    letters = ["\n", *map(chr, range(32, 127)), *map(chr, range(0x400, 0x4A0))]
    vocabulary = {letter: index for index, letter in enumerate([END, *letters])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END)


def sliding() -> Any:
    """A window of five positions, for which transformers' own cache is kept."""
    sizes: dict[str, Any] = {"vocab_size": 257, "hidden_size": 16, "intermediate_size": 24}
    sizes |= {"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1}
    config = MistralConfig(**sizes, sliding_window=5, initializer_range=0.3, eos_token_id=0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = MistralForCausalLM(config).double()
    for name, module in list(model.named_modules()):
        if type(module).__name__ == "MistralRMSNorm":
            parent, _, child = name.rpartition(".")
            norm = ExactNorm(module.weight, module.variance_epsilon)
            setattr(model.get_submodule(parent), child, norm)
    return model


MODELS: dict[str, Callable[[], Any]] = {
    "llama": lambda: exact_backbone().model,
    "gpt2": lambda: exact_gpt2().model,
    "sliding": sliding,
}


@pytest.fixture(params=MODELS)
def backbone(request: pytest.FixtureRequest) -> Backbone:
    return Backbone(MODELS[request.param](), spelling())


@pytest.fixture
def llama() -> Backbone:
    return Backbone(MODELS["llama"](), spelling())


def prompts_of(*lengths: int) -> list[list[int]]:
    source = torch.Generator().manual_seed(2)
    return [torch.randint(1, 257, (length,), generator=source).tolist() for length in lengths]


PROMPTS = prompts_of(5, 11, 3, 5, 20, 1, 8, 12)
NAMES = [f"prompt {number}" for number in range(len(PROMPTS))]


def complete(
    backbone: Backbone, settings: SamplingParameters = FREE, batch: int = 512
) -> list[list[str]]:
    return sample_completions(backbone, PROMPTS, NAMES, settings, batch=batch)


def alone(
    backbone: Backbone, prompt: list[int], name: str, settings: SamplingParameters
) -> list[str]:
    """The completions of one prompt by whole forward passes: no cache, no neighbours."""
    shape = (settings.samples, settings.max_new_tokens)
    texts = []
    for row in torch.rand(shape, generator=generator(settings.seed, "completion", name)):
        text = ""
        ids = list(prompt)
        for value in row:
            with torch.no_grad():
                hidden = backbone.hidden(torch.tensor([ids]))[:, -1]
            logits = backbone.logits(hidden).float() / settings.temperature
            ids.append(int(nucleus_sample(logits, value[None], settings.top_p, None)))
            if ids[-1] in backbone.stop_tokens:
                break
            text += backbone.decode(ids[-1:])
        texts.append(text)
    return texts


@pytest.mark.parametrize("batch", [512, 7])
def test_each_is_drawn_as_if_it_were_alone(backbone: Backbone, batch: int) -> None:
    """Neither the batch nor neighbours matter."""
    drawn = complete(backbone, batch=batch)
    for prompt, name, texts in zip(PROMPTS, NAMES, drawn, strict=True):
        assert texts == alone(backbone, prompt, name, FREE)
    every = [text for texts in drawn for text in texts]
    assert len(set(every)) == len(every)
    assert max(map(len, every)) == FREE.max_new_tokens


def test_the_end_is_no_part_of_the_text(llama: Backbone) -> None:
    """Every fourth token ends the text, and rows leave at all times."""
    llama.stop_tokens = frozenset(range(0, 257, 4))
    drawn = complete(llama)
    for prompt, name, texts in zip(PROMPTS, NAMES, drawn, strict=True):
        assert texts == alone(llama, prompt, name, FREE)
    lengths = {len(text) for texts in drawn for text in texts}
    assert 0 in lengths and 9 in lengths and len(lengths) > 3


def test_without_chance_it_is_generate(backbone: Backbone) -> None:
    greedy = FREE.model_copy(update={"top_p": 1e-6, "samples": 2})
    for prompt, texts in zip(PROMPTS, complete(backbone, greedy), strict=True):
        ids = torch.tensor([prompt])
        whole: Tensor = backbone.model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=9,
            pad_token_id=0,
        )  # fmt: skip
        wanted = backbone.decode(whole[0, len(prompt) :].tolist())
        assert texts == [wanted, wanted]
        assert wanted


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows every step of the test had."""
    seen: list[int] = []

    class Watched(CachedSteps):
        def __call__(self, ids: Tensor) -> Tensor:
            seen.append(len(ids))
            return super().__call__(ids)

    monkeypatch.setattr(local_model, "steps_for", Watched)
    return seen


def test_short_memory_changes_nothing(
    llama: Backbone, rows: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = complete(llama)
    assert max(rows) == len(PROMPTS) * 3
    rows.clear()
    lengths: list[int] = []

    def two_fit(backbone: Backbone, length: int) -> int:
        lengths.append(length)
        return 2

    monkeypatch.setattr(local_model, "rows_that_fit", two_fit)
    assert complete(llama) == drawn
    assert max(rows) == 2
    # What takes most memory comes first, and rows of like length are together.
    longest = sorted((len(prompt) + 9 for prompt in PROMPTS for _ in range(3)), reverse=True)
    assert lengths == longest[::2]


def test_prompts_take_no_step_of_their_own(llama: Backbone, rows: list[int]) -> None:
    llama.stop_tokens = frozenset()
    sample_completions(llama, prompts_of(3, 20), ["short", "long"], FREE, batch=512)
    assert rows == [6] * 9


def test_draws_are_named(llama: Backbone) -> None:
    before = torch.get_rng_state()
    drawn = complete(llama)
    torch.manual_seed(99)
    after = torch.get_rng_state()
    assert complete(llama) == drawn
    assert torch.equal(torch.get_rng_state(), after)
    torch.set_rng_state(before)
    other = complete(llama, FREE.model_copy(update={"seed": 5}))
    renamed = sample_completions(llama, PROMPTS, NAMES[1:] + NAMES[:1], FREE, batch=512)
    for ours, seeded, named in zip(drawn, other, renamed, strict=True):
        assert ours != seeded and ours != named


def cut_before(stops: Sequence[str], drawn: list[list[str]]) -> list[list[str]]:
    pattern = "|".join(map(re.escape, stops))
    return [[re.split(pattern, text, maxsplit=1)[0] for text in texts] for texts in drawn]


def test_a_text_ends_before_its_first_stop(llama: Backbone) -> None:
    long = FREE.model_copy(update={"max_new_tokens": 25, "temperature": 0.8})
    free = complete(llama, long)
    some = free[4][1]
    # A token of its own; two that run over tokens, which overlap; one that never comes.
    stops = (free[0][0][7], some[5:7], some[6:8], "never")
    stopped = complete(llama, long.model_copy(update={"stop": stops}))
    assert stopped == cut_before(stops, free)
    assert some.startswith(stopped[4][1]) and len(stopped[4][1]) <= 5


def test_a_token_that_shows_a_stop_ends_its_row(llama: Backbone, rows: list[int]) -> None:
    every = tuple(llama.decode([token]) for token in range(1, 257))
    alike = prompts_of(6, 6, 6)
    settings = FREE.model_copy(update={"stop": every})
    drawn = sample_completions(llama, alike, ["a", "b", "c"], settings, batch=512)
    assert drawn == [["", "", ""]] * 3
    assert rows == [9]
    assert local_model._tokens_showing(llama, ("\n",)) == {1}
    assert local_model._tokens_showing(llama, ("ab",)) == frozenset()


def test_tokens_of_several_letters_show_and_hide_stops() -> None:
    """The embedded model's own: letters of several tokens, lines that end within one."""
    backbone = load_backbone(Backbone.Config(precision="float64"))
    vocabulary = backbone.tokenizer.get_vocab()
    newline_tokens = {index for token, index in vocabulary.items() if "Ċ" in token}  # the byte "\n"
    assert (
        local_model._tokens_showing(backbone, ("\n",)) == newline_tokens and len(newline_tokens) > 1
    )
    ids = backbone.tokenize("a crème\n\nb")
    assert local_model._text(backbone, ids, ("\n",)) == "a crème"
    assert local_model._text(backbone, [*ids, 0], ()) == "a crème\n\nb"
    questions = ["Where is the blue mill?", "Who sold the old boat and why?", "When?"]
    asked = [backbone.tokenize(f"Question: {question}\nAnswer:") for question in questions]
    settings = SamplingParameters(samples=4, temperature=1.5, top_p=1.0, max_new_tokens=16)
    free = sample_completions(backbone, asked, questions, settings, batch=512)
    stops = ("\n", "the", "er", ".")
    settings = settings.model_copy(update={"stop": stops})
    stopped = sample_completions(backbone, asked, questions, settings, batch=512)
    assert stopped == cut_before(stops, free)
    full_text, cut_off = ("".join(map("".join, drawn)) for drawn in (free, stopped))
    assert len(cut_off) < 0.8 * len(full_text)


# A backbone as a text model.


def answers(
    model: BackboneModel, prompts: Sequence[Prompt], settings: SamplingParameters
) -> list[Any]:
    by_place = dict(model.answer(prompts, settings))
    assert sorted(by_place) == list(range(len(prompts)))
    return [by_place[place] for place in range(len(prompts))]


def test_raw_text_is_continued(llama: Backbone) -> None:
    model = BackboneModel(llama, "tiny")
    texts = ["Question: why?\nAnswer:", "Once", "a\nb"]
    prompts = [Prompt(f"p{number}", text) for number, text in enumerate(texts)]
    ids = [llama.tokenize(text) for text in texts]
    wanted = sample_completions(llama, ids, ["p0", "p1", "p2"], FREE, batch=512)
    assert answers(model, prompts, FREE) == wanted
    assert model.name == f"tiny sha256:{llama.fingerprint[:12]}"
    assert model.batch > 1
    assert answers(model, [], FREE) == []


def test_what_does_not_fit_is_a_failure_and_no_text() -> None:
    """64 positions: 9 new tokens leave 55 to the prompt."""
    backbone = Backbone(MODELS["gpt2"](), spelling())
    texts = ["x" * 55, "x" * 56, "", "x"]
    prompts = [Prompt(str(number), text) for number, text in enumerate(texts)]
    results = answers(BackboneModel(backbone, "tiny"), prompts, FREE)
    assert results[0] == alone(backbone, backbone.tokenize(texts[0]), "0", FREE)
    assert results[3] == alone(backbone, backbone.tokenize(texts[3]), "3", FREE)
    assert isinstance(results[1], Failure) and isinstance(results[2], Failure)
    assert "56 tokens of the prompt and 9 new ones" in results[1].reason
    assert "64 positions" in results[1].reason and "empty" in results[2].reason


def test_a_system_message_goes_through_the_chat_template(llama: Backbone) -> None:
    model = BackboneModel(llama, "tiny")
    chat = Prompt("one", "Write it.", system="Be brief.")
    with pytest.raises(HoldfastError, match=r"^tiny sha256:.* has no chat template") as caught:
        list(model.answer([chat], FREE))
    assert "\n" not in str(caught.value)
    llama.tokenizer.chat_template = TEMPLATE
    raw = Prompt("one", "s>Be brief.\nu>Write it.\na>")
    assert answers(model, [chat], FREE) == answers(model, [raw], FREE)
    refuses = (
        "{% if messages[0].role == 'system' %}{{ raise_exception('no\nsystem role') }}{% endif %}"
    )
    llama.tokenizer.chat_template = refuses + TEMPLATE
    raw = Prompt("one", "u>Be brief.\n\nWrite it.\na>")
    assert answers(model, [chat], FREE) == answers(model, [raw], FREE)
    llama.tokenizer.chat_template = "{{ raise_exception('no\nsystem role') }}"
    with pytest.raises(HoldfastError, match=r"\(no system role\)"):
        list(model.answer([chat], FREE))
