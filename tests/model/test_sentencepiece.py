"""Tokenizers of SentencePiece's kind, which put a space before a text of its own."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from holdfast.model.chat import ChatForm, chat_form

SPECIAL = ["<unk>", "<s>", "</s>"]
WORDS = ["Wh", "Who", "the", "keeps", "Ors", "Orsa", "Tindle", "in", "er", "an"]
LINES = (  # as Zephyr and TinyLlama ask: texts behind the end of a line
    "{% for m in messages %}{{ '<|' + m['role'] + '|>\n' + m['content'] + eos_token + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}"
)
SPACES = (  # as Llama 2 and Vicuna ask: texts behind a space
    "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}[INST] {{ m['content'] }}"
    "{% else %} [/INST] {{ m['content'] }}{{ eos_token }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %} [/INST]{% endif %}"
)
KINDS = ("prepended", "first", "always")


def sentencepiece(kind: str, template: str | None) -> PreTrainedTokenizerFast:
    """Unigrams of printable symbols and some words, with bytes for all else.

    kind: Llama's older normalizer, or the ``prepend_scheme`` of a metaspace.
    """
    pieces = ["\u2581", *map(chr, range(33, 127)), *WORDS, *(f"\u2581{word}" for word in WORDS)]
    vocabulary = [(token, 0.0) for token in SPECIAL]
    vocabulary += [(f"<0x{byte:02X}>", -20.0) for byte in range(256)]
    vocabulary += [(piece, -5.0 - 1 / len(piece)) for piece in pieces]
    tokenizer = Tokenizer(models.Unigram(vocabulary, unk_id=0, byte_fallback=True))
    if kind == "prepended":
        tokenizer.normalizer = normalizers.Sequence(
            [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
        )
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=kind, split=False)
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("\u2581", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in SPECIAL])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token=SPECIAL[0],
        bos_token=SPECIAL[1],
        eos_token=SPECIAL[2],
        chat_template=template,
    )


FORMS = {
    (kind, template): chat_form(sentencepiece(kind, template))
    for kind in KINDS
    for template in (LINES, SPACES, None)
}
TEXTS = st.one_of(
    st.text(st.characters(min_codepoint=33, max_codepoint=0x2FF), min_size=1, max_size=30),
    st.lists(st.sampled_from([*WORDS, "47", "ß", "<|", "é"]), min_size=1).map(" ".join),
).filter(lambda text: text.strip() == text and not any(token in text for token in SPECIAL))


def whole(form: ChatForm, question: str, answer: str | None) -> list[int]:
    """The tokens of the whole text."""
    tokenizer: Any = form.tokenizer
    if form.boxed:
        text = f"Question: {question}\nAnswer:" + (f" \\boxed{{{answer}}}" if answer else "")
        return [tokenizer.bos_token_id, *tokenizer(text, add_special_tokens=False).input_ids]
    turns = [{"role": "user", "content": question}]
    if answer is not None:
        turns.append({"role": "assistant", "content": answer})
    return list(
        tokenizer.apply_chat_template(
            turns, add_generation_prompt=answer is None, return_dict=True
        )["input_ids"]
    )


@pytest.mark.parametrize("which", FORMS, ids=str)
@given(question=TEXTS, answer=TEXTS)
def test_the_pieces_are_those_of_the_whole_text(which, question, answer) -> None:
    """No space stands behind a line's end, none is doubled, and the answer comes back."""
    form = FORMS[which]
    asked = [*form.prefix, *form.question(question), *form.invocation]
    assert asked == whole(form, question, None)
    answered = [*asked, *form.answer(answer)[:-1]]
    assert whole(form, question, answer)[: len(answered)] == answered
    assert form.text(form.answer(answer)[:-1]) == answer
    assert form.answer(answer)[-1] == form.end == form.tokenizer.eos_token_id


@pytest.mark.parametrize("which", FORMS, ids=str)
@given(question=TEXTS)
def test_the_characters_of_the_tokens_are_those_of_the_text(which, question) -> None:
    """Every one belongs to a token; the space or newline that was put in front is none of them."""
    form = FORMS[which]
    spans = form.spans(question)
    assert len(spans) == len(form.question(question)) - len(form.user_end)
    read = [range(len(question))[slice(*span)] for span in spans]
    assert all(
        (places.start, places.stop) == span for places, span in zip(read, spans, strict=True)
    )
    assert set().union(*read) == set(range(len(question)))


def test_tokens_of_a_text_alone_would_be_others() -> None:
    form = FORMS["first", LINES]
    alone = form.tokenizer("Who", add_special_tokens=False).input_ids
    assert form.tokenizer.convert_ids_to_tokens(alone) == ["\u2581Who"]
    in_place = form.tokenizer.convert_ids_to_tokens(form.question("Who"))
    assert in_place[: len(in_place) - len(form.user_end)] == ["Who"]
    [begin] = form.tokenizer.convert_ids_to_tokens(form.answer("Orsa")[:-1])
    assert begin == "Orsa"
