"""Anchors and allocation rules in your own training loop.

:class:`Anchored` for a bare PyTorch or accelerate loop; ``hf_trainer`` for the Trainer of
transformers and TRL's trainers, ``lightning`` for PyTorch Lightning.
"""

from holdfast.integrations.anchored import Anchored

__all__ = ["Anchored"]
