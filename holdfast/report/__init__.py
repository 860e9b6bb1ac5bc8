"""Figures and pages of finished results. Never imports torch."""
