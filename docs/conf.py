"""How Sphinx builds these pages: ``make docs``, where a warning is an error."""

from __future__ import annotations

import sys
from pathlib import Path

import tithe

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

project = "tithe"
author = "the tithe contributors"
project_copyright = author
version = release = tithe.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "numpydoc",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "other_libraries",
    "page_outputs",
    "reference_pages",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build", "README.md"]
templates_path = ["_templates"]

myst_enable_extensions = ["dollarmath", "amsmath", "deflist", "colon_fence"]
myst_heading_anchors = 3

smartquotes_action = "qe"  # quotes and ellipses; dashes of options stay as they can be copied
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_selector = "div:not(.output) > div.highlight > pre"

html_theme = "pydata_sphinx_theme"
html_title = "tithe"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_context = {"default_mode": "auto"}  # light or dark as the reader has it; the theme complains of an empty one
html_show_sourcelink = False  # the code of public names is linked: [source]
html_theme_options = {
    # a text until several versions are published: then "version-switcher", which reads a list of them
    "navbar_end": ["version", "theme-switcher"],
    "header_links_before_dropdown": 3,  # more take a second line at 1,200 pixels
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
}
# pages at the top have none below them: the navigation of their section would be empty
html_sidebars = {path.stem: [] for path in HERE.glob("*.md")}

default_role = "py:obj"  # names in docstrings are links, also those of scikit-learn
autosummary_generate = True
autodoc_typehints = "none"  # numpydoc shows the types that docstrings state
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"plot_",
    "abort_on_example_error": False,
    "only_warn_on_example_error": True,  # with -W a failed example fails the build, after all of them were run
    "plot_gallery": True,
    "show_memory": False,
    "remove_config_comments": True,
    "default_thumb_file": str(HERE / "_static" / "rare_groups.png"),
    "within_subsection_order": "FileNameSortKey",
    "copyfile_regex": r"^$",
}
suppress_warnings = ["config.cache"]  # settings of the gallery that cannot be compared with those of the last build
