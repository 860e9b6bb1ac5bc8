"""An anchor, an allocation rule and a source of streams for Holdfast."""
