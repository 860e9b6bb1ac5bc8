"""Finished results as figures. Never imports torch."""
