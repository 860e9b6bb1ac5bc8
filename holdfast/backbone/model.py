"""A frozen causal language model: hidden states, output head, tokenizer, replay token."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor

from holdfast.backbone.adapters.dropout import Part
from holdfast.backbone.adapters.frozen import unquantize
from holdfast.backbone.adapters.workspace import Adapters
from holdfast.backbone.checkpointing import checkpoint_blocks
from holdfast.backbone.decoder.decoder import Decoder
from holdfast.backbone.decoder.forward_pass import DecoderPass, ForwardPass, ModulesPass
from holdfast.backbone.sequences import Batch, Share
from holdfast.core.config import Config
from holdfast.core.errors import HoldfastError

# Settings that came later than the first runs: at these values they are in no identity.
LATER_SETTINGS = {"revision": None, "attention": "auto", "quantization": "none"}
REPLAY_TOKEN = "<|replay_token|>"
_FINGERPRINT_ENTRIES = 65_536
# Settings that change a model's outputs and leave the shapes of its weights alone.
_COMPUTED = (
    "activation_function", "hidden_act", "layer_norm_epsilon", "layer_norm_eps", "model_type",
    "num_attention_heads", "num_key_value_heads", "rms_norm_eps", "rope_parameters",
    "sliding_window",
)  # fmt: skip
# Two tokenizers of one vocabulary may merge, normalise or split differently.
_PROBE = "Question: Who keeps Zoë's 3rd, naïve  LIGHTHOUSE?\nAnswer: \\boxed{1,234.5 km} 灯台"


class Backbone:
    """A frozen causal language model, split into hidden states and output head.

    model, tokenizer: the Hugging Face objects; head: the output embedding; pad_token, eos_token:
    token ids; stop_tokens: ids that end a generation; seed_token: id of the replay token, None
    until :meth:`add_replay_token`; fused: whether element-wise parts are compiled; decoder: the
    passes written out, None where the modules make them; see :meth:`adapt` for both.

    Passes through an adapted model are made within :meth:`answering` or :meth:`learning`.
    """

    class Config(Config):
        """revision: only models of the hub have one; null is the main branch.

        attention: auto is the fastest exact one. sdpa is PyTorch's kernel at every length. The
        others are computed by the model's own modules, slower in training; flash_attention_2 needs
        a GPU and a package.

        quantization: of all linear maps but the output head, to 8 or 4 bits; products are taken in
        ``precision``. Rules that merge keep a float32 master in host memory.
        """

        name: str = "embedded"  # "embedded", "smollm2", a hub name or a directory
        precision: Literal["auto", "float32", "bfloat16", "float64"] = "auto"
        device: str = "auto"
        compile: bool = False  # fuse the element-wise parts of training; needs a compiler
        deterministic: bool = False  # torch's deterministic algorithms only, in the whole process
        revision: str | None = None  # a branch, a tag or a commit
        attention: Literal["auto", "sdpa", "eager", "flash_attention_2"] = "auto"
        quantization: Literal["none", "int8", "nf4"] = "none"  # nf4 needs bitsandbytes
        checkpointing: bool = False  # keep each layer's input only; compute layers twice a step
        offload: bool = False  # on a GPU: rest in host memory what only moments need

    def __init__(self, model: Any, tokenizer: Any) -> None:
        """Take a loaded model; HoldfastError when its logits are not head(last hidden state).

        On a GPU this sets two things for the whole process: the default device, and that cuDNN's
        attention is not used.
        """
        self.model = model.eval().requires_grad_(False)
        self.tokenizer = tokenizer
        self.head = model.get_output_embeddings()
        self.device: torch.device = next(model.parameters()).device
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
            # It is reported to plan for tens of milliseconds at every new length, which most steps
            # have, and to gain nothing on sequences of a few hundred tokens.
            torch.backends.cuda.enable_cudnn_sdp(False)
        self.seed_token: int | None = None
        self._decoder: Decoder | None = None
        self._fused = False
        self._adapters: Adapters | None = None
        stops = model.generation_config.eos_token_id
        stops = stops if isinstance(stops, list) else [stops]
        known = [*stops, tokenizer.eos_token_id]
        self.stop_tokens = frozenset(int(token) for token in known if token is not None)
        self.fingerprint = _fingerprint(model, tokenizer, self.stop_tokens)
        self.eos_token: int | None = tokenizer.eos_token_id
        pad = tokenizer.pad_token_id
        self.pad_token: int = pad if pad is not None else (self.eos_token or 0)
        self._check_vocabulary()
        self._check_head()

    @property
    def dtype(self) -> torch.dtype:
        """The precision of the model's activations."""
        dtype: torch.dtype = self.head.weight.dtype
        return dtype

    @property
    def opening(self) -> list[int]:
        """The tokens before a prompt: the replay token, where sequences were learned with it."""
        return [] if self.seed_token is None else [self.seed_token]

    def hidden(self, ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Last hidden states, after the final norm: [batch, length] -> [batch, length, d].

        Right-padded input needs no mask: attention is causal, no token sees what follows it.
        """
        outputs = self.model.base_model(
            input_ids=ids, attention_mask=attention_mask, use_cache=False
        )
        states: Tensor = outputs.last_hidden_state
        return states

    def adapt(
        self,
        config: Adapters.Config,
        *,
        seed_row: bool = False,
        fused: bool = False,
        checkpointing: bool = False,
        attention: str = "auto",
        folds: bool = True,
    ) -> str | None:
        """Put low-rank branches beside the maps that ``config`` names; once a model.

        seed_row: train the replay token's input row too; fused: compile element-wise parts of the
        decoder and of the losses; checkpointing: compute each layer a second time in the backward
        pass instead of keeping its results; attention: as in :class:`Config`; folds: as in
        :class:`~holdfast.backbone.adapters.workspace.Adapters`. Returns why the model's own modules
        make the passes, None where the decoder is written out.
        Raises HoldfastError when no map has a target's name, the rank is above a map's, or no layer
        can be computed twice.
        """
        assert self._adapters is None, "adapted already"
        token = self.seed_token if seed_row else None
        self._adapters = Adapters(self.model, config, self.head, seed_row=token, folds=folds)
        decoder = Decoder.of(
            self.model,
            self._adapters,
            fused=fused,
            checkpointing=checkpointing,
            attention=attention,
        )
        self._fused = fused
        if isinstance(decoder, str):
            if checkpointing:
                checkpoint_blocks(self.model, self._adapters)
            return decoder
        self._decoder = decoder
        return None

    @property
    def is_adapted(self) -> bool:
        """Whether :meth:`adapt` has put branches beside its maps."""
        return self._adapters is not None

    @property
    def adapters(self) -> Adapters:
        """The adapted maps, after :meth:`adapt`."""
        assert self._adapters is not None, "not adapted"
        return self._adapters

    @property
    def decoder(self) -> Decoder | None:
        """Our own passes over the model's weights; None where its modules make them."""
        return self._decoder

    @property
    def fused(self) -> bool:
        """Whether element-wise parts are compiled."""
        return self._fused

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Within the block: evaluation mode, no gradients, no dropout.

        Every module's own mode is restored afterwards. Blocks may be nested.
        """
        training = [module for module in self.model.modules() if module.training]
        self.model.eval()
        adapted = contextlib.nullcontext() if self._adapters is None else self._adapters.answering()
        try:
            with torch.no_grad(), adapted:
                yield
        finally:
            for module in training:
                module.training = True

    @contextmanager
    def learning(self, *mask_seeds: int) -> Iterator[None]:
        """Within the block passes are functions of the factors as they are at its beginning.

        mask_seeds: seeds of each batch's dropout masks; without them there is no dropout.
        """
        with self.adapters.learning(*mask_seeds):
            yield

    @contextmanager
    def by_modules(self) -> Iterator[None]:
        """Within the block the model's own modules make every pass, for comparison."""
        decoder, self._decoder = self._decoder, None
        try:
            yield
        finally:
            self._decoder = decoder

    def merge_and_unload(self) -> None:
        """Fold the branches into the dense maps and put the plain modules back."""
        self.adapters.unquantize()
        self.adapters.fold()
        self.adapters.unload(self.model)
        unquantize(self.model)
        self._adapters = self._decoder = None

    @torch.no_grad()
    def states(self, *batches: Batch) -> tuple[Tensor, ...]:
        """The last hidden states, after the final norm, at every row of each batch: [n, d].

        One pass over all rows where the decoder is written out, else one a batch.
        """
        self._check_mode()
        if self._decoder is not None:
            return self._decoder.states(*batches)
        return self._states_of_modules(batches)

    def forward_pass(self, *batches: Batch) -> ForwardPass:
        """The same, differentiable in the factors; after :meth:`adapt`."""
        self._check_mode()
        shared = any(batch.share is not None for batch in batches)
        if shared:
            self.adapters.dropout.shared([self._rows_of_share(batch.share) for batch in batches])
        if self._decoder is not None:
            return DecoderPass(self._decoder, batches, shared=shared)
        return ModulesPass(self._states_of_modules(batches), self.adapters, shared=shared)

    def _rows_of_share(self, share: Share | None) -> Part | None:
        """Rows of a whole minibatch as a pass sees them, and which are this process's."""
        if share is None:
            return None
        if self._decoder is not None:
            return share.tokens(), share.rows(self.device)
        return share.cells(self.device)

    def _states_of_modules(self, batches: Sequence[Batch]) -> tuple[Tensor, ...]:
        states = []
        for place, batch in enumerate(batches):
            if self._adapters is not None:
                self._adapters.dropout.alone(place)
            hidden = self.hidden(batch.grid(batch.inputs, self.pad_token))
            states.append(batch.packed(hidden))
        return tuple(states)

    def logits(self, hidden: Tensor) -> Tensor:
        """Next-token logits of hidden states: [..., d] -> [..., vocabulary]."""
        logits: Tensor = self.head(hidden)
        return logits

    def tokenize(self, text: str) -> list[int]:
        """Token ids of a text, without special tokens."""
        ids: list[int] = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids

    def decode(self, ids: list[int]) -> str:
        """The text of token ids; special tokens are skipped, spaces are not cleaned up."""
        text: str = self.tokenizer.decode(
            ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return text

    def add_replay_token(self) -> int:
        """Add the seed token s, its rows the mean of the original vocabulary's; return its id.

        The input row, and the output row when it is untied, are set once and stay frozen. On a
        model that already has the token nothing changes.
        Source: eq. app-replay-init.
        """
        vocabulary = self.tokenizer.get_vocab()
        if REPLAY_TOKEN in vocabulary:
            known: int = vocabulary[REPLAY_TOKEN]
            self.seed_token = known
            return known
        size = len(self.tokenizer)
        self.tokenizer.add_special_tokens(
            {"extra_special_tokens": [REPLAY_TOKEN]}, replace_extra_special_tokens=False
        )
        token = int(self.tokenizer.convert_tokens_to_ids(REPLAY_TOKEN))
        if token >= self.model.get_input_embeddings().weight.shape[0]:
            # Resizing draws the new row at random; it is overwritten, and the generator restored.
            with torch.random.fork_rng(devices=[]):
                self.model.resize_token_embeddings(token + 1, mean_resizing=False)
        self.model.requires_grad_(False)
        self.head = self.model.get_output_embeddings()
        tables = [self.model.get_input_embeddings().weight]
        if self.head.weight is not tables[0]:
            tables.append(self.head.weight)
        with torch.no_grad():
            for table in tables:
                wide = table[:size].to(torch.promote_types(table.dtype, torch.float32))
                table[token] = wide.mean(dim=0).to(table.dtype)
            bias = getattr(self.head, "bias", None)
            if bias is not None:
                bias[token] = bias[:size].mean()
        self.seed_token = token
        return token

    def _check_mode(self) -> None:
        known = self._adapters
        assert known is None or known.in_use, "a pass needs the block answering() or learning()"

    def _check_vocabulary(self) -> None:
        rows = int(self.model.get_input_embeddings().weight.shape[0])
        highest = max(self.tokenizer.get_vocab().values())
        if highest >= rows:
            raise HoldfastError(
                f"backbone {type(self.model).__name__}: its tokenizer has token {highest}, and its "
                f"embedding {rows} rows; save the model with the tokenizer it was trained with"
            )

    def _check_head(self) -> None:
        probe = torch.tensor([[self.pad_token, 0, 1]], device=self.device)
        with torch.no_grad():
            direct = self.model(input_ids=probe, use_cache=False).logits
            ours = self.logits(self.hidden(probe))
        if not torch.allclose(direct.float(), ours.float(), rtol=1e-3, atol=1e-3):
            raise HoldfastError(
                f"backbone {type(self.model).__name__}: its logits are not its output head on the "
                "last hidden state (soft-capping or scaling), which the losses rely on; "
                "choose another backbone"
            )


def _fingerprint(model: Any, tokenizer: Any, stop_tokens: frozenset[int]) -> str:
    """sha256 of what decides a model's answers, the same in every version of the libraries.

    Covers the weights (of large ones evenly spaced entries), the settings that change outputs, the
    vocabulary, the tokens of a text, and the stop tokens.
    """
    digest = hashlib.sha256()
    digest.update(repr(sorted(tokenizer.get_vocab().items())).encode())
    tokens = list(tokenizer(_PROBE, add_special_tokens=False)["input_ids"])
    computed = {name: getattr(model.config, name, None) for name in _COMPUTED}
    rotary = sorted((computed.pop("rope_parameters") or {}).items())
    digest.update(repr((tokens, sorted(stop_tokens), sorted(computed.items()), rotary)).encode())
    for name, weight in model.state_dict().items():
        flat = weight.reshape(-1)
        stride = -(-flat.numel() // _FINGERPRINT_ENTRIES)
        sample = flat[::stride].float().cpu().numpy()
        digest.update(f"{name}{tuple(weight.shape)}".encode() + sample.tobytes())
    return digest.hexdigest()
