"""The demo's report: pictures of rates, spectra and one event, and a page that holds them.

The functions draw plain arrays and know nothing of a federation. Needs the extra `plots`.
"""

from femtobarn.report.event_display import EventPicture, draw_event
from femtobarn.report.page import Picture, Report
from femtobarn.report.spectra import (
    draw_dimuon_spectrum,
    draw_jet_momenta,
    draw_jet_response,
    draw_z_peak,
    invariant_mass,
)
from femtobarn.report.stages import HEADINGS, Stage, draw_rates, table
from femtobarn.report.style import png, style, svg

__all__ = [
    "HEADINGS",
    "EventPicture",
    "Picture",
    "Report",
    "Stage",
    "draw_dimuon_spectrum",
    "draw_event",
    "draw_jet_momenta",
    "draw_jet_response",
    "draw_rates",
    "draw_z_peak",
    "invariant_mass",
    "png",
    "style",
    "svg",
    "table",
]
