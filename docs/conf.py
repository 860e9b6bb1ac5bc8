"""How Sphinx builds these pages; ``CONTENTS`` is the list of them."""

import os
import sys
from pathlib import Path

from pygments.lexers.shell import BashLexer
from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).parent / "_sphinx"))

project = "Holdfast"
project_copyright = "The Holdfast developers, Apache-2.0"
extensions = [
    "sphinx.ext.autodoc",
    "sphinx_copybutton",
    "myst_nb",
    "contents",
    "configuration",
    "api_reference",
    "offline",
]
exclude_patterns = ["_sphinx", "results/**", "notebooks/runs", "**.ipynb_checkpoints"]

# Every page by its place below docs/, without its suffix. A page that is in no list is an error;
# what matches a pattern is added behind the others of its list.
CONTENTS = {
    "": ["tutorial", "memory"],
    "How-to": [
        "how-to/models",
        "how-to/real-model",
        "how-to/evaluate",
        "how-to/your-own-stream",
        "how-to/notebook",
        "how-to/will-it-fit",
        "how-to/watch",
        "how-to/several-gpus",
        "how-to/fit-the-card",
        "how-to/export",
        "how-to/serve",
        "how-to/agent",
        "how-to/add-an-anchor",
        "how-to/add-a-rule",
        "how-to/add-a-stream",
        "how-to/*",
    ],
    "Notebooks": ["notebooks/first-study", "notebooks/new-anchor", "notebooks/*"],
    "Studies": ["streams", "studies", "analysis", "capability", "paper-study"],
    "Reference": [
        "reference/configuration",
        "reference/api",
        "reference/mechanisms",
        "reference/streams",
        "reference/results",
        "reference/figures",
        "reference/engine",
        "reference/*",
    ],
    "Explanation": ["explanation/ideas", "explanation/lasting", "explanation/deviations"],
    "Results": [
        "results",
        "results-lasting",
        "results-real-model",
        "results-chat-memory",
        "performance",
    ],
}

myst_heading_anchors = 4  # as Git hosts name them
myst_links_external_new_tab = False
# Progress bars ask for widgets, which a page cannot show.
os.environ["PYTHONWARNINGS"] = "ignore:IProgress not found"
# One thread, so that the pages say the same on a machine of more cores, or of other work.
os.environ["OMP_NUM_THREADS"] = "1"
nb_execution_mode = "force"
nb_execution_in_temp = True  # what a notebook writes is no part of the site
nb_execution_show_tb = True  # a cell that fails is a warning, which is an error
nb_execution_timeout = 1800  # seconds for a cell, on a machine that does other work too
nb_merge_streams = True
smartquotes = False  # `--option` keeps its hyphens
highlight_language = "text"
default_role = "literal"  # single backquotes in a docstring

autodoc_default_options = {"members": True, "member-order": "bysource"}
autoclass_content = "both"  # what a class is, then what its arguments are
autodoc_type_aliases = {"Facts": "Facts"}
autodoc_typehints_format = "short"
nitpicky = True
nitpick_ignore_regex = [
    # What a memory is made of, behind the names that are public.
    (
        r"py:.*",
        r"holdfast\.(memory|model)\.(answering\.Answerer|engine|lesson|limits|record|reading|chat)\b.*",
    ),
    ("py:class", r"(?!holdfast\.).*"),  # of other libraries
    # Inside the engine and the integrations; settings.
    ("py:class", r"holdfast\.(learning|model|integrations)\..*|.*\.Config"),
    ("py:class", r"holdfast\.analysis\.tables\.Table"),  # for studies of the repository
]
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80
add_module_names = False

html_theme = "furo"
html_title = "Holdfast"
html_static_path = ["_static"]
html_css_files = ["holdfast.css"]
html_copy_source = False
html_show_sphinx = False
pygments_style = "friendly"
pygments_dark_style = "monokai"
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#00695c", "color-brand-content": "#00695c"},
    "dark_css_variables": {"color-brand-primary": "#4db6ac", "color-brand-content": "#4db6ac"},
}


def setup(app: Sphinx) -> None:
    """Colour commands that have no prompt; take tables as text."""
    app.add_lexer("console", BashLexer)
    app.add_lexer("csv", TextLexer)
