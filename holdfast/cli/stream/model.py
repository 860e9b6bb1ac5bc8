"""The language model that writes for a command: a backbone of this machine or an endpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.core.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.builders.text_model import TextModel


def text_model(
    backbone: str, endpoint: str | None, model: str | None, concurrency: int | None
) -> TextModel:
    """The endpoint's model if a URL is given, with the key OPENAI_API_KEY, else the backbone."""
    if endpoint is not None:
        from holdfast.builders.endpoint import Endpoint

        return Endpoint(endpoint, model, concurrency=concurrency or 16)
    if model is not None or concurrency is not None:
        option = "--model" if model is not None else "--concurrency"
        raise HoldfastError(
            f"{option} is for an endpoint; give its --endpoint URL, or leave it out"
        )
    from holdfast.backbone.load import load_backbone
    from holdfast.backbone.model import Backbone
    from holdfast.builders.local_model import BackboneModel
    from holdfast.core.config import build

    config = build(Backbone.Config, {"name": backbone}, source="--backbone")
    return BackboneModel(load_backbone(config), backbone)
