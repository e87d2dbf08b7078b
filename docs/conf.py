"""Settings of the documentation site; ``make docs`` builds it, docs/development/site.md tells more."""

import os
import re
import sys
import warnings
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from vpboost import __version__

sys.path.insert(0, str(Path(__file__).parent))  # for gallery_look

project = "vpboost"
author = "The vpboost developers"
copyright = "the vpboost developers, Apache 2.0"
version = release = __version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "**/sg_execution_times.rst", "sg_execution_times.rst"]
nitpicky = True

# --- pages ------------------------------------------------------------------------------------------------------------

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
myst_url_schemes = ("http", "https", "mailto")
templates_path = ["_templates"]

# --- reference --------------------------------------------------------------------------------------------------------

autosummary_generate = True
autodoc_typehints = "none"  # docstrings tell, in words
autodoc_member_order = "alphabetical"
toc_object_entries_show_parents = "hide"
smartquotes = False  # "auto" is what one types
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
numpydoc_xref_param_type = False

# Links to other projects take a network: without one the build must be the same, and without a warning.
if os.environ.get("VPBOOST_DOCS_ONLINE"):
    extensions.append("sphinx.ext.intersphinx")
    intersphinx_mapping = {
        "jax": ("https://docs.jax.dev/en/latest", None),
        "matplotlib": ("https://matplotlib.org/stable", None),
        "numpy": ("https://numpy.org/doc/stable", None),
        "pandas": ("https://pandas.pydata.org/docs", None),
        "python": ("https://docs.python.org/3", None),
        "scipy": ("https://docs.scipy.org/doc/scipy", None),
        "sklearn": ("https://scikit-learn.org/stable", None),
    }
    nitpick_ignore_regex = []
else:
    nitpick_ignore_regex = [(r"py:.*", r"(functools|jax|matplotlib|numpy|optax|optuna|pandas|scipy|sklearn)\..*")]
# Modules inside are named in docstrings for those who read the code; they have no page.
nitpick_ignore_regex.append((r"py:.*", r"vpboost\.(core|tables|estimators|numerics)\..*"))

# --- gallery ----------------------------------------------------------------------------------------------------------

# Programs that JAX has compiled stay in memory; joblib starts a worker anew that has grown much, and would tell.
warnings.filterwarnings("ignore", message="A worker stopped while some jobs were given", category=UserWarning)
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"plot_",
    "within_subsection_order": "FileNameSortKey",
    "subsection_order": [f"../examples/{name}" for name in ("simulations", "tables", "inside", "own", "production")],
    "reset_modules": ("gallery_look.reset",),
    "remove_config_comments": True,
    "parallel": 2,
    "show_memory": False,
    "show_signature": False,
    "download_all_examples": False,
    "min_reported_time": 0,
    "copyfile_regex": "",
    "thumbnail_size": (480, 336),
    "image_scrapers": ("matplotlib",),
    "matplotlib_animations": False,
}

# --- look -------------------------------------------------------------------------------------------------------------

html_theme = "pydata_sphinx_theme"
html_title = "vpboost"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_context = {"default_mode": "auto"}  # light or dark, as the reader's system is
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "logo": {"text": "vpboost"},
    "header_links_before_dropdown": 6,
    "navbar_end": ["theme-switcher"],
    "navbar_persistent": ["search-button"],
    "show_prev_next": True,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_sidebars: dict[str, list[str]] = {"index": [], "get-started": [], "examples": []}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True


def lead_to_gallery(app: Sphinx, docname: str, source: list[str]) -> None:
    """Let links to the source of an example lead to its page in the gallery, and others to the pages of the site."""
    up = "../" * docname.count("/")
    source[0] = re.sub(r"\]\((?:\.\./)+examples/([\w/]+)\.py\)", rf"]({up}auto_examples/\1.rst)", source[0])
    source[0] = source[0].replace("](../examples)", f"]({up}auto_examples/index.rst)")
    for name in ("CONTRIBUTING", "CHANGELOG"):  # which have pages here that include them
        source[0] = source[0].replace(f"](../{name}.md)", f"]({up}development/{name.lower()}.md)")


def skip_attributes(app: Sphinx, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Leave out of the reference what the estimators' code notes of their fitted attributes: docstrings list them."""
    return True if what == "class" and name.endswith("_") and not isinstance(obj, property) else None


def without_aliases(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Say nothing of a field of a tuple rather than which number it has."""
    lines[:] = [line for line in lines if not line.startswith("Alias for field number")]


def lead_to_modules(app: Sphinx, env: Any, node: Any, contnode: Any) -> Any:
    """Let names that the package has from a module, ``vpboost.MLP`` say, lead to their page, which is the module's."""
    name = node["reftarget"].removeprefix("vpboost.")
    for place in ("featurizers", "losses"):
        if node.get("refdomain") == "py" and f"vpboost.{place}.{name}" in env.domains["py"].objects:
            target, kind = f"vpboost.{place}.{name}", node["reftype"]
            return env.domains["py"].resolve_xref(env, node["refdoc"], app.builder, kind, target, node, contnode)
    return None


def setup(app: Sphinx) -> None:
    """Join in."""
    app.connect("source-read", lead_to_gallery)
    app.connect("autodoc-skip-member", skip_attributes)
    app.connect("autodoc-process-docstring", without_aliases)
    app.connect("missing-reference", lead_to_modules)
