"""A document of Markdown as PDF, printed by a Chromium that is there: the same text gives the same bytes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

from markdown_it import MarkdownIt

from artifacts.errors import InputError
from artifacts.writing.scratch import cache_folder, scratch

_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
_FLAGS = (
    "--headless", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking", "--no-first-run",
    "--host-resolver-rules=MAP * ~NOTFOUND", "--no-pdf-header-footer",
)  # fmt: skip
_SECONDS = 120
_PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'"><style>
@page {{ size: A4; margin: 2cm; }}
body {{ font: 10.5pt/1.45 "DejaVu Sans", sans-serif; overflow-wrap: anywhere; }}
h1 {{ font-size: 17pt; line-height: 1.2; }} h2 {{ font-size: 12.5pt; break-after: avoid; }}
table {{ border-collapse: collapse; }} tr, li {{ break-inside: avoid; }}
th, td {{ border-bottom: 1px solid #bbb; padding: .15cm .5cm .15cm 0; text-align: left; vertical-align: top; }}
</style></head><body>{body}</body></html>"""
# When and by which browser on which system it was printed; what replaces them is as long, so that offsets stay right.
_WHEN = re.compile(rb"(?<=\(D:)[0-9]{14}(?=\+00'00'\))")
_BY = re.compile(rb"(?<=/Creator \()(?:\\.|[^\\)])*(?=\))")


def as_pdf(markdown: bytes, *, title: str) -> bytes:
    """A4 pages. Refused where nothing is installed that prints them."""
    program = next((found for name in _BROWSERS if (found := shutil.which(name))), None)
    if program is None:
        raise InputError(
            "PDF is printed by Chromium, and none is installed (Debian: apt-get install chromium). Write .md instead."
        )
    renderer = MarkdownIt("commonmark", {"html": False}).enable("table")
    escaped = title.replace("&", "&amp;").replace("<", "&lt;")
    with scratch(cache_folder(), "pdf") as folder:
        source, out = folder / "document.html", folder / "document.pdf"
        source.write_text(_PAGE.format(title=escaped, body=renderer.render(markdown.decode())))
        sandbox = [] if os.geteuid() else ["--no-sandbox"]  # Chromium has none for root
        profile = f"--user-data-dir={folder / 'profile'}"
        command = [program, *_FLAGS, *sandbox, profile, f"--print-to-pdf={out}", source.as_uri()]
        try:
            done = subprocess.run(command, capture_output=True, timeout=_SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise InputError(f"{program} did not print the PDF: {error}. Write .md instead.") from error
        if not out.exists():
            said = done.stderr.decode(errors="replace").strip().splitlines()
            raise InputError(f"{program} printed no PDF: {said[-1] if said else 'it said nothing'}. Write .md instead.")
        printed = out.read_bytes()
    return _BY.sub(lambda found: b"fedsynth".ljust(len(found[0])), _WHEN.sub(b"19700101000000", printed))
