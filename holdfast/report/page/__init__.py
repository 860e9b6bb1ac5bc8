"""The page: a study as one HTML file that needs nothing else.

Source: app:results.
"""

from holdfast.report.page.document import render, write_page

__all__ = ["render", "write_page"]
