"""Load a model that writes text: one of this machine, or one behind an endpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.builders.endpoint import Endpoint
from holdfast.core.config import build
from holdfast.core.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.builders.text_model import TextModel


def text_model(
    name: str,
    endpoint: str | None = None,
    model: str | None = None,
    concurrency: int | None = None,
    *,
    precision: str = "auto",
) -> TextModel:
    """The model behind an endpoint, if its URL is given or is the name; else the named backbone.

    model, concurrency: of the endpoint, which gets the key OPENAI_API_KEY; refused without one.
    precision: of a backbone.
    """
    endpoint = name if endpoint is None and "://" in name else endpoint
    if endpoint is not None:
        return Endpoint(endpoint, model, concurrency=concurrency or 16)
    if model is not None or concurrency is not None:
        option = "--model" if model is not None else "--concurrency"
        raise HoldfastError(
            f"{option} is for an endpoint; give its --endpoint URL, or leave it out"
        )
    from holdfast.builders.local_model import BackboneModel
    from holdfast.model.backbone import Backbone
    from holdfast.model.load import load_backbone

    config = build(Backbone.Config, {"name": name, "precision": precision}, source="--backbone")
    return BackboneModel(load_backbone(config), name)
