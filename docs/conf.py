"""The documentation's site: `make docs` builds it from this folder into target/site."""

import os
import sys

from docutils import nodes
from sphinx.application import Sphinx
from sphinxarg.ext import ArgParseDirective

import femtobarn
from femtobarn.importers import Samples

project = "Femtobarn"
author = "The Femtobarn developers"
version = release = femtobarn.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinxarg.ext"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
exclude_patterns = ["scalability"]

# Notebooks run when the site is built; a cell that fails fails the build.
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 120

# One of them shows real events. Where they can neither be found nor fetched, it is shown as it is written.
try:
    Samples("../.cache/samples").fetch(progress=False)
except femtobarn.StorageError as error:
    if os.environ.get("CI", "").lower() == "true":
        raise
    print(f"zmumu.md is not executed: {error}", file=sys.stderr)
    nb_execution_excludepatterns = ["zmumu.md"]
    suppress_warnings = ["myst-nb.lexer"]

autodoc_member_order = "bysource"
autodoc_typehints = "none"
napoleon_google_docstring = False
napoleon_use_rtype = False

# Python's own documentation is not linked, since the site is built without a network.
nitpick_ignore_regex = [("py:class", r"collections\.abc\..*")]

html_theme = "furo"
html_title = "Femtobarn"
html_theme_options = {"sidebar_hide_name": False}
html_copy_source = False
html_show_copyright = False
html_static_path = ["static"]
html_css_files = ["wide.css"]


class Commands(ArgParseDirective):
    """The commands, each with its arguments and options below it, without the headings of sphinx-argparse."""

    def run(self) -> list[nodes.Node]:
        """Return the page's sections: one for each command."""
        page = nodes.section("", *super().run())
        for section in list(page.findall(nodes.section))[1:]:
            heading = section.next_node(nodes.title).astext()
            if heading == "commands":  # A list of what follows.
                section.parent.remove(section)
            elif heading in ("Positional Arguments", "Named Arguments", "Sub-commands"):
                section.replace_self(section.children[1:])
        return page.children


def setup(app: Sphinx) -> None:
    """Add the directive of the page of commands."""
    app.add_directive("commands", Commands)
