"""Calibration: constants with validities, and the two global tags that the passes of reconstruction name.

The first pass reads nominal constants under the tag `PROMPT`. `job` measures better ones by intervals of the
run, with `gains` from raw cells and with `shifts` from the `residuals` of the first pass's tracks.
`constants` puts them into the series, where they hide the nominal ones, and freezes the tag `FINAL`.
`timeline` and `quality` compare the results with the truth of the simulation.
"""

from femtobarn_demo.calibration.constants import FINAL, PROMPT, put_nominal
from femtobarn_demo.calibration.job import calibrate
from femtobarn_demo.calibration.quality import residuals_of, responses_of
from femtobarn_demo.calibration.timeline import Timeline, timelines, typical_errors

__all__ = [
    "FINAL",
    "PROMPT",
    "Timeline",
    "calibrate",
    "put_nominal",
    "residuals_of",
    "responses_of",
    "timelines",
    "typical_errors",
]
