"""A simulated site, larger than the machines at hand: its bottleneck, the costs of operations, and remedies.

`site_file` reads the description of a site, `model` simulates it at one load with the `stations` at which
requests wait, and `recalls` its tape drives. `study` compares scenarios; `tables` and `page` show them.
`queueing` predicts measured runs by the same stations. docs/planning.md lists the simplifications.
"""
