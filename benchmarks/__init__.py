"""Costs of training and sampling against the plain reference, and facts to measure memories."""
