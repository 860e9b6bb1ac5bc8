"""General capability: what a model can still do besides recalling what it memorised.

Source: app:res-capability.
"""
