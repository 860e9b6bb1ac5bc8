"""General capability: benchmarks of a model's abilities other than recall of the stream.

Source: app:res-capability.
"""
