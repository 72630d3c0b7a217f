"""Classes, and the types of their fields. Imports only errors.

- ``meanings``: meanings of stored values in Python, such as times; ``leaf_types``: types of single values.
- ``types``: types of fields, class definitions, and both as the catalogue's JSON.
- ``references``: links by indices to elements of the same object.
- ``names``: names of fields made from names in files.
- ``annotations``: the annotations that declare fields, and the type that each stands for.
- ``classes``: persistent classes, made from annotations.
- ``declared_fields``: the attributes that an object may have, and fields that storing it would lose.
- ``unions``: one class for objects whose fields differ between files.

``classes`` imports ``annotations`` and ``declared_fields``. These, ``references`` and ``unions`` import
``types``, this ``leaf_types``, and this ``meanings``.
"""
