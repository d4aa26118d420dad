"""Links names of other libraries to their documentation, by its patterns.

This is what intersphinx does, without the lists of names that it downloads: pages are built where there is no network.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from docutils import nodes
    from sphinx.application import Sphinx

PAGES = {
    "numpy": "https://numpy.org/doc/stable/reference/generated/{}.html",
    "pandas": "https://pandas.pydata.org/docs/reference/api/{}.html",
    "scipy": "https://docs.scipy.org/doc/scipy/reference/generated/{}.html",
    "sklearn": "https://scikit-learn.org/stable/modules/generated/{}.html",
}


def address_of(name: str) -> str | None:
    """The address of the page of a class or function such as ``sklearn.cluster.KMeans``."""
    name = name.strip("~. ")
    pattern = PAGES.get(name.partition(".")[0])
    if pattern is None or "." not in name:
        return None
    if name.startswith("numpy.random."):
        return pattern.replace("/generated/", "/random/generated/").format(name)
    return pattern.format(name)


def linked(app: Sphinx, env: Any, node: Any, content: Any) -> nodes.reference | None:
    """The link for a name that these pages do not document themselves."""
    from docutils import nodes

    address = address_of(node.get("reftarget", ""))
    if address is None:
        return None
    link = nodes.reference("", "", internal=False, refuri=address)
    link.append(content)
    return link


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("missing-reference", linked)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
