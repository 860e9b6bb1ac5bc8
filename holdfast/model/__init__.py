"""Models: fetching, converting, caching and loading; chat templates, LoRA layers, curvature."""
