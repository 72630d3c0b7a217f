"""The demo's report: pictures of rates (`stages`), `spectra`, `conditions` and one event
(`event_display`), and their page (`contents`).

The functions draw plain arrays and never read a federation. Needs the extra `plots`.
"""

from femtobarn_demo.report.conditions import draw_residuals, draw_responses, draw_timelines
from femtobarn_demo.report.contents import Report
from femtobarn_demo.report.event_display import EventPicture, draw_event
from femtobarn_demo.report.spectra import (
    draw_dimuon_spectrum,
    draw_jet_momenta,
    draw_jet_response,
    draw_z_peak,
    invariant_mass,
)
from femtobarn_demo.report.stages import HEADINGS, Movement, Stage, draw_rates, table

__all__ = [
    "HEADINGS",
    "EventPicture",
    "Movement",
    "Report",
    "Stage",
    "draw_dimuon_spectrum",
    "draw_event",
    "draw_jet_momenta",
    "draw_jet_response",
    "draw_rates",
    "draw_residuals",
    "draw_responses",
    "draw_timelines",
    "draw_z_peak",
    "invariant_mass",
    "table",
]
