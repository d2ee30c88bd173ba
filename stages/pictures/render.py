"""A matplotlib figure as PNG bytes, without date, software name or anything else that varies."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def png_bytes(figure: Figure, *, dpi: int = 120) -> bytes:
    """Render with Agg, whatever back end the user's configuration names."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(figure)
    sink = io.BytesIO()
    figure.savefig(sink, format="png", dpi=dpi, metadata={"Software": None})
    return sink.getvalue()
