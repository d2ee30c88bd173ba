"""A matplotlib figure as PNG bytes: no date, no software name, and not the user's own style."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@contextlib.contextmanager
def plain_style() -> Iterator[None]:
    """Draw inside this: the user's own matplotlib configuration must not change the bytes."""
    import matplotlib

    with matplotlib.rc_context(), warnings.catch_warnings():
        matplotlib.rcdefaults()
        warnings.filterwarnings("ignore", message="Glyph")  # a class name in a script that the font lacks
        yield


def png_bytes(figure: Figure, *, dpi: int = 120) -> bytes:
    """Render with Agg, whatever back end the user's configuration names."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(figure)
    sink = io.BytesIO()
    figure.savefig(sink, format="png", dpi=dpi, metadata={"Software": None})
    return sink.getvalue()
