"""The documentation as a site: `make docs`."""

from ariane import __version__

project = "Ariane"
author = "the Ariane authors"
release = __version__
copyright = "2026, the Ariane authors"

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]

# Links to headings (`settings.md#store`) as GitHub makes them, and drawings in plain fences.
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence", "deflist"]
# Generated pages have their own levels; code in another tongue than a lexer knows is still shown.
suppress_warnings = ["myst.header", "misc.highlighting_failure"]

# A fence without a language holds a drawing, a table of figures or what a program printed.
highlight_language = "text"

html_theme = "furo"
html_title = f"Ariane {__version__}"
html_show_sphinx = False
html_show_sourcelink = False
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["ariane.css"]
