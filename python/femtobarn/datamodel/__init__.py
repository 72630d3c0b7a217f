"""Data models written for podio: YAML files that declare the classes of an experiment.

Components become records, datatypes classes, relations links, vector members lists. The code that such
files hold beside the declarations is left out.
"""

from __future__ import annotations

from .model import Model, load_model

__all__ = ["Model", "load_model"]
