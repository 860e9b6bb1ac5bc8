"""Batched sampling of completions, and a backbone as a text model.

The random number of a draw depends only on (seed, name of the prompt, sample, position), so batch
size, other prompts and their order change no draw, up to the rounding of logits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from weakref import WeakKeyDictionary

import torch
from jinja2 import TemplateError
from torch import Tensor

from holdfast.builders.text_model import Answer, Failure, Prompt, SamplingParameters, text_before
from holdfast.core.errors import HoldfastError, reason_of
from holdfast.core.seeding import generator
from holdfast.model.backbone import Backbone
from holdfast.model.generation.decoding import steps_for
from holdfast.model.generation.sampling import Sampling, continue_rows, rows_that_fit

# More prompts would sort into batches with less padding, but show progress less often.
_PROMPTS_AT_ONCE = 128
# Rows per batch. Fewer rows differ less in length; a GPU needs more of them to be busy.
_ROWS = {"cpu": 192, "cuda": 512}

_texts_of_tokens: WeakKeyDictionary[Backbone, list[str]] = WeakKeyDictionary()


class BackboneModel:
    """A backbone of this machine as a :class:`holdfast.builders.text_model.TextModel`.

    A prompt without a system message is continued as it is, without special tokens, like the
    sequences of training and recall. A prompt with one goes through the tokenizer's chat template.
    Source: app:data-real.
    """

    def __init__(self, backbone: Backbone, name: str) -> None:
        """name: what the configuration calls the backbone; its fingerprint is added."""
        self.name = f"{name} sha256:{backbone.fingerprint[:12]}"
        self.batch = _PROMPTS_AT_ONCE
        self._backbone = backbone

    @property
    def is_chat(self) -> bool:
        """Whether its tokenizer has a chat template."""
        return bool(self._backbone.tokenizer.chat_template)

    def answer(
        self, prompts: Sequence[Prompt], sampling: SamplingParameters
    ) -> Iterator[tuple[int, Answer]]:
        """Yield (place, answer) of every prompt, first the failures: empty or too long prompts.

        Raises HoldfastError if a prompt has a system message and the model no chat template.
        """
        ids = [self._ids(prompt) for prompt in prompts]
        places = []
        for place, tokens in enumerate(ids):
            reason = self._unfit(tokens, sampling)
            if reason is None:
                places.append(place)
            else:
                yield place, Failure(reason)
        texts = sample_completions(
            self._backbone,
            [ids[place] for place in places],
            [prompts[place].name for place in places],
            sampling,
            batch=_ROWS.get(self._backbone.device.type, 512),
        )
        yield from zip(places, texts, strict=True)

    def _ids(self, prompt: Prompt) -> list[int]:
        if prompt.system is None:
            return self._backbone.tokenize(prompt.text)
        tokenizer = self._backbone.tokenizer
        if not self.is_chat:
            raise HoldfastError(
                f"{self.name}: its tokenizer has no chat template, which a prompt with a system "
                "message needs; choose a model that is trained to follow instructions"
            )
        system = {"role": "system", "content": prompt.system}
        user = {"role": "user", "content": prompt.text}
        # Some templates, such as Gemma 2's, know no system message.
        whole = {"role": "user", "content": f"{prompt.system}\n\n{prompt.text}"}
        for messages in ([system, user], [whole]):
            try:
                # enable_thinking=False: no reasoning before the answer; other templates ignore it.
                text = tokenizer.apply_chat_template(
                    messages, tokenize=False, add_generation_prompt=True, enable_thinking=False
                )
            except (TemplateError, ValueError) as error:
                failure = error
            else:
                return self._backbone.tokenize(text)
        raise HoldfastError(
            f"{self.name}: its chat template takes no user message ({reason_of(failure, 200)}); "
            "choose another model"
        ) from failure

    def _unfit(self, tokens: list[int], sampling: SamplingParameters) -> str | None:
        if not tokens:
            return "the prompt is empty"
        limit = self._backbone.positions
        if limit is None or len(tokens) + sampling.max_new_tokens <= limit:
            return None
        return (
            f"{len(tokens)} tokens of the prompt and {sampling.max_new_tokens} new ones are more "
            f"than the model's {limit} positions"
        )


def sample_completions(
    backbone: Backbone,
    prompts: Sequence[Sequence[int]],
    names: Sequence[str],
    sampling: SamplingParameters,
    *,
    batch: int,
) -> list[list[str]]:
    """Sample ``sampling.samples`` completions of each prompt: the new text before its first stop.

    prompts: token ids, none of them empty, that leave the model positions for the new tokens;
    names: seed each prompt's random numbers; batch: the most completions at once.
    Source: app:data-real.
    """
    stops = backbone.stop_tokens | _tokens_showing(backbone, sampling.stop)
    texts: list[list[str]] = [[] for _ in prompts]
    # Rows of a batch are padded to its longest prompt, so sort by length.
    longest_first = sorted(range(len(prompts)), key=lambda prompt: -len(prompts[prompt]))
    rows = [(prompt, sample) for prompt in longest_first for sample in range(sampling.samples)]
    while rows:
        longest = len(prompts[rows[0][0]]) + sampling.max_new_tokens
        size = min(batch, rows_that_fit(backbone, longest))
        owners = [prompt for prompt, _ in rows[:size]]
        noise = _noise(backbone.device, rows[:size], names, sampling)
        drawn = _complete(backbone, [prompts[owner] for owner in owners], noise, stops, sampling)
        for owner, tokens in zip(owners, drawn, strict=True):
            texts[owner].append(_text(backbone, tokens, sampling.stop))
        rows = rows[size:]
    return texts


def _noise(
    device: torch.device,
    rows: list[tuple[int, int]],
    names: Sequence[str],
    sampling: SamplingParameters,
) -> Tensor:
    """The uniform numbers of (prompt, sample) pairs: [rows, max_new_tokens]."""
    tables = {}
    for prompt in {prompt for prompt, _ in rows}:
        source = generator(sampling.seed, "completion", names[prompt])
        tables[prompt] = torch.rand(
            sampling.samples, sampling.max_new_tokens, generator=source, dtype=torch.float32
        )
    return torch.stack([tables[prompt][sample] for prompt, sample in rows]).to(device)


def _complete(
    backbone: Backbone,
    prompts: list[Sequence[int]],
    noise: Tensor,
    stops: frozenset[int],
    sampling: SamplingParameters,
) -> list[list[int]]:
    """Sample the new tokens of each row. prompts: one per row of ``noise``, with repeats.

    Each distinct prompt is prefilled once; then its cache row is repeated for its samples.
    """
    places: dict[tuple[int, ...], int] = {}
    order = [places.setdefault(tuple(prompt), len(places)) for prompt in prompts]
    steps = steps_for(backbone)
    last = steps.begin(list(places))
    rows = torch.tensor(order, device=backbone.device)
    steps.keep(rows)
    config = Sampling(temperature=sampling.temperature, top_p=sampling.top_p)
    return continue_rows(steps, last[rows], noise, stops, config)


def _tokens_showing(backbone: Backbone, stop: tuple[str, ...]) -> frozenset[int]:
    """The tokens whose own text contains a stop string, such as most tokens with a newline.

    They only end a row early; :func:`_text` decides where the text is cut.
    """
    if not stop:
        return frozenset()
    texts = _texts_of_tokens.get(backbone)
    if texts is None:
        tokens = [[token] for token in range(len(backbone.tokenizer))]
        texts = backbone.tokenizer.batch_decode(
            tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        _texts_of_tokens[backbone] = texts
    return frozenset(token for token, text in enumerate(texts) if any(end in text for end in stop))


def _text(backbone: Backbone, tokens: list[int], stop: tuple[str, ...]) -> str:
    """The text of new tokens before the first stop, which may begin and end inside tokens."""
    if tokens and tokens[-1] in backbone.stop_tokens:
        tokens = tokens[:-1]
    return text_before(stop, backbone.decode(tokens))
