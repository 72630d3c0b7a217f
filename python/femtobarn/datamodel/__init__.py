"""Data models written for podio: YAML files that declare the classes of an experiment.

Components become records, datatypes become classes, relations become links, vector members become lists. C++
code in the files is ignored.

- ``outline``: the YAML file, and the form of its sections. ``members``: declarations of single members.
- ``instances``: Python classes made from definitions. ``model``: the model with its definitions and classes.
- ``evolution``: members that were renamed from one version of a model to the next.
- ``collections``: how podio stores objects of a model in the events of its files.
"""

from __future__ import annotations

from .model import Model, load_model

__all__ = ["Model", "load_model"]
