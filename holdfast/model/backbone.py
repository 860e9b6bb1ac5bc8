"""A frozen causal language model: hidden states, output head, tokenizer, replay token."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn

from holdfast.core.config import Config
from holdfast.core.errors import HoldfastError
from holdfast.core.processes import rank
from holdfast.core.seeding import derive
from holdfast.model.checkpointing import checkpoint_blocks
from holdfast.model.layers import LoraSettings, context_of
from holdfast.model.lora import LoraWorkspace, with_lora
from holdfast.model.projection import ForwardPass
from holdfast.model.seed_row import SeedRowEmbedding, set_input_row
from holdfast.model.sequences import Batch
from holdfast.model.sources.check import check_vocabulary

REPLAY_TOKEN = "<|replay_token|>"
_FINGERPRINT_ENTRIES = 65_536
# Settings that change a model's outputs, but not the shapes of its weights.
_COMPUTED = (
    "activation_function", "hidden_act", "layer_norm_epsilon", "layer_norm_eps", "model_type",
    "num_attention_heads", "num_key_value_heads", "rms_norm_eps", "rope_parameters",
    "sliding_window",
)  # fmt: skip
# Tokenizers with the same vocabulary may merge, normalise or split this text differently.
_PROBE = "Question: Who keeps Zoë's 3rd, naïve  LIGHTHOUSE?\nAnswer: \\boxed{1,234.5 km} 灯台"


class Backbone:
    """A frozen causal language model, split into hidden states and output head.

    model, tokenizer: the Hugging Face objects; head: the output embedding; stop_tokens: ids that
    end a generation; seed_token: id of the replay token, None until :meth:`add_replay_token`.

    Passes through an adapted model must be made within :meth:`answering` or :meth:`learning`.
    """

    class Config(Config):
        """revision: only models of the hub have one; null is the main branch.

        precision: auto is bfloat16 on a GPU and float32 on a CPU; fastest is bfloat16 also on a CPU
        that multiplies faster in it, which is measured when a run begins.

        attention: transformers' implementation; auto is eager on a CPU in bfloat16, and else
        leaves the choice to transformers. flash_attention_2 needs a GPU and a package.

        quantization: of all linear maps but the output head, by bitsandbytes; updates cannot be
        merged into quantized matrices.
        """

        name: str = "embedded"  # also "smollm2", a hub name, a directory, a .gguf file
        precision: Literal["auto", "fastest", "float32", "bfloat16", "float64"] = "auto"
        device: str = "auto"
        deterministic: bool = False  # torch's deterministic algorithms only, in the whole process
        revision: str | None = None  # a branch, a tag or a commit
        attention: Literal["auto", "sdpa", "eager", "flash_attention_2"] = "auto"
        quantization: Literal["none", "int8", "nf4"] = "none"  # needs bitsandbytes
        checkpointing: bool = False  # keep each layer's input only; compute layers twice a step

    def __init__(self, model: Any, tokenizer: Any) -> None:
        """Take a loaded model.

        Raises HoldfastError if the logits are not head(last hidden state), if the model is not
        causal, or if its tokenizer has more tokens than its embedding has rows.
        """
        self.model = model.eval().requires_grad_(False)
        self.tokenizer = tokenizer
        self.head = model.get_output_embeddings()
        self.device: torch.device = next(model.parameters()).device
        self.seed_token: int | None = None
        self._workspace: LoraWorkspace | None = None
        self._mode: str | None = None
        stops = model.generation_config.eos_token_id
        stops = [*(stops if isinstance(stops, list) else [stops]), tokenizer.eos_token_id]
        self.stop_tokens = frozenset(int(token) for token in stops if token is not None)
        self.fingerprint = _fingerprint(model, tokenizer, self.stop_tokens)
        self.eos_token: int | None = tokenizer.eos_token_id
        pad = tokenizer.pad_token_id
        self.pad_token: int = pad if pad is not None else (self.eos_token or 0)
        check_vocabulary(model, tokenizer)
        self._check_causal()
        self._check_head()

    @property
    def dtype(self) -> torch.dtype:
        """The precision of the model's activations."""
        dtype: torch.dtype = self.head.weight.dtype
        return dtype

    @property
    def positions(self) -> int | None:
        """The most tokens of a sequence; None if there is no limit."""
        return context_of(self.model.config)

    @property
    def opening(self) -> list[int]:
        """The tokens before every prompt: the replay token, if the model has it."""
        return [] if self.seed_token is None else [self.seed_token]

    def hidden(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        """Last hidden states, after the final norm: [batch, length] -> [batch, length, d].

        mask: real tokens, [batch, length]. Right-padded input needs none: attention is causal.
        """
        mask = None if mask is None else mask.long()
        outputs = self.model.base_model(input_ids=ids, attention_mask=mask, use_cache=False)
        states: Tensor = outputs.last_hidden_state
        return states

    def adapt(
        self, settings: LoraSettings, *, seed_row: bool = False, checkpointing: bool = False
    ) -> None:
        """Put PEFT's LoRA layers with B = 0 on the maps that ``settings`` name; once per model.

        seed_row: train the replay token's input row too; checkpointing: as in the configuration.
        Raises HoldfastError if no map has a target's name, the rank exceeds a map's, or no layer
        can be computed twice.
        """
        assert self._workspace is None, "adapted already"
        more: dict[str, nn.Parameter] = {}
        adapted = with_lora(self.model, settings)
        if seed_row:
            assert self.seed_token is not None
            table = self.model.get_input_embeddings()
            embedding = SeedRowEmbedding(table, self.seed_token)
            self.model.set_input_embeddings(embedding)
            more["seed_row"] = embedding.row
        masters = settings.merge_precision == "float32"
        self._workspace = LoraWorkspace(adapted, more=more, masters=masters)
        self._workspace.given_start_is_used()
        self.model.eval()
        if checkpointing:
            checkpoint_blocks(self.model)

    @property
    def is_adapted(self) -> bool:
        """Whether :meth:`adapt` was called."""
        return self._workspace is not None

    @property
    def workspace(self) -> LoraWorkspace:
        """The factors of the adapted maps. Raises HoldfastError before :meth:`adapt`."""
        if self._workspace is None:
            raise HoldfastError("the backbone has no LoRA layers to train; call adapt() first")
        return self._workspace

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Within the block: evaluation mode, no gradients, no dropout.

        If every B is 0 the LoRA layers are switched off, which is exact. Blocks may be nested.
        """
        if self._mode == "answering":
            with torch.no_grad():
                yield
            return
        assert self._mode is None, f"answering while {self._mode}"
        modules = [module for module in self.model.modules() if module.training]
        self.model.eval()
        clear = self._workspace is not None and self._workspace.is_clear
        self._mode = "answering"
        try:
            with torch.no_grad():
                if clear:
                    self._switch(on=False)
                yield
        finally:
            self._mode = None
            if clear:
                self._switch(on=True)
            for module in modules:
                module.training = True

    def _switch(self, *, on: bool) -> None:
        for layer in self.workspace.layers.values():
            layer.module.enable_adapters(on)

    @contextmanager
    def learning(self, *, dropout: bool = False) -> Iterator[None]:
        """Within the block passes have gradients in the factors; blocks must not be nested.

        dropout: whether passes drop inputs of the LoRA layers; nothing else is dropped.
        """
        assert self._mode is None, f"learning while {self._mode}"
        maps = [layer.module for layer in self.workspace.layers.values()]
        dropouts = [module for layer in maps for module in layer.lora_dropout.children()]
        self._mode = "learning"
        try:
            with torch.enable_grad():
                for module in dropouts:
                    module.training = dropout
                yield
        finally:
            self._mode = None
            for module in dropouts:
                module.training = False

    def merge_and_unload(self) -> None:
        """Add the updates to the dense matrices and put the plain modules back.

        Raises HoldfastError if the matrices are quantized.
        """
        model = self.workspace.model
        embedding = self.model.get_input_embeddings()
        if isinstance(embedding, SeedRowEmbedding):
            self.model.set_input_embeddings(embedding.base)
            set_input_row(self.model, embedding.token, embedding.row.detach())
        self.workspace.fold()
        model.unload()
        self._workspace = None

    @torch.no_grad()
    def states(self, batch: Batch) -> Tensor:
        """The last hidden states, after the final norm, at every row of a batch: [n, d]."""
        self._check_mode()
        return batch.packed(self.hidden(batch.grid(batch.inputs, self.pad_token)))

    def forward_pass(self, *batches: Batch, mask_seeds: Sequence[int] = ()) -> ForwardPass:
        """The states of each batch, differentiable in the factors; after :meth:`adapt`.

        mask_seeds: of each batch's dropout masks, empty without dropout.
        """
        self._check_mode()
        shared = any(batch.shard is not None for batch in batches)
        graph = []
        for place, batch in enumerate(batches):
            with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
                if mask_seeds:
                    seed = mask_seeds[place]
                    # Processes that share a minibatch draw different masks.
                    torch.manual_seed(derive(seed, "process", rank()) if shared else seed)
                hidden = self.hidden(batch.grid(batch.inputs, self.pad_token))
            graph.append(batch.packed(hidden))
        return ForwardPass(self, batches, graph, self.workspace.parameters())

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
        """Add the replay token s, whose rows are the vocabulary's mean rows; return its id.

        The input row, and the output row if it is untied, are set once and stay frozen. A model
        that already has the token does not change.
        Source: eq. app-replay-init.
        """
        known: int | None = self.tokenizer.get_vocab().get(REPLAY_TOKEN)
        if known is not None:
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
        # One table, if they are tied.
        tables = {self.model.get_input_embeddings().weight, self.head.weight}
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
        is_ready = self._workspace is None or self._mode is not None
        assert is_ready, "a pass needs the block answering() or learning()"

    def _check_causal(self) -> None:
        probes = [torch.tensor([[self.pad_token, 0, last]], device=self.device) for last in (0, 1)]
        with torch.no_grad():
            first, second = (self.hidden(probe)[:, :2].float() for probe in probes)
        # Rounding in half precision or in quantized products is far smaller.
        if (first - second).norm() > 0.05 * first.norm():
            raise HoldfastError(
                f"backbone {type(self.model).__name__}: what it says at a token depends on the "
                "tokens behind it, so it is no causal language model; choose another backbone"
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
    """sha256 of what decides a model's answers, the same in every version of the libraries."""
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
