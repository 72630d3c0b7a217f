"""The event display: objects of any model in 3D, on one page that needs no network.

``event.display()`` and ``view.display()`` show it in notebooks, ``femtobarn display`` writes a file.

- ``rules``: the forms in which collections are drawn. Programs insert their own into :data:`RULES`.
- ``columns``, ``forms``: members of items, and the positions, directions and curvatures that they make.
- ``groups``: the objects that links lead to, and their collections.
- ``relations``, ``podio``, ``targets``: which item links to which.
- ``scenes``: all of it as JSON; ``page``: the page around it, with the scripts beside it.
- ``three``: the library that draws, as its authors publish it.
"""

from .page import Display, display
from .rules import RULES, Rule

__all__ = ["RULES", "Display", "Rule", "display"]
