"""HTML pages (`page`) and the style of plots (`style`) for the reports of the demo and of the testbed.

This package imports neither the demo, nor the testbed, nor Femtobarn. `style` needs the extra `plots`.
"""
