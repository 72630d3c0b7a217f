"""An HTML page (`page`) and a look of pictures (`style`), for the reports of the demo and of the testbed.

Imports neither of them, nor Femtobarn. `style` needs the extra `plots`.
"""
