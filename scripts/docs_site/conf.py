"""Sphinx's configuration for the site; its sources are written by ``scripts.docs_site``."""

from coatcheck.version import __version__

project = "Coatcheck"
release = version = __version__
copyright = ""  # noqa: A001 - Sphinx's name for it
extensions = ["myst_parser", "sphinx_copybutton"]
source_suffix = {".md": "markdown"}
exclude_patterns: list[str] = []
myst_heading_anchors = 4
myst_enable_extensions = ["strikethrough"]
smartquotes = False  # a tenth of the time of a build
# Mermaid would be fetched from another host: the diagram is shown as text. There are no lexers for
# the output of a shell or a browser.
myst_fence_as_directive: list[str] = []
highlight_language = "none"
suppress_warnings = ["misc.highlighting_failure"]

html_theme = "furo"
html_title = f"Coatcheck {__version__}"
html_static_path = ["static"]
html_css_files = ["coatcheck.css"]
html_show_copyright = False
html_show_sphinx = False
html_copy_source = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0f5f4c", "color-brand-content": "#0b6b54"},
    "dark_css_variables": {"color-brand-primary": "#6fd3b5", "color-brand-content": "#7fdcc0"},
    "footer_icons": [],
}
copybutton_exclude = ".linenos, .gp, .go"
