"""The page: a study as one self-contained HTML file.

Source: app:results.
"""

from holdfast.report.page.document import render, write_page

__all__ = ["render", "write_page"]
