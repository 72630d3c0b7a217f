"""Classes and the types of their fields. Knows only errors; everything else is above it.

- ``types``: types of fields, class definitions, and both as the catalogue's JSON.
- ``annotations``: the annotations that declare fields, and the type that each stands for.
- ``classes``: persistent classes, made from annotations.
- ``declared_fields``: which attributes an object may have, and which would be lost in storing it.
- ``unions``: one class for objects whose fields differ between files.

``types`` is at the bottom, then ``annotations`` and ``declared_fields``, then ``classes``.
"""
