"""Sends what a run reports while it learns to an experiment tracker."""
