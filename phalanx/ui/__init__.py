"""One local page over run folders: see `docs/ui.md`.

`curves` reads metrics as they grow, `library` finds runs and says what they are, `server` answers a browser,
`page/` is what it shows. Run folders may come from anybody: they are read, never run and never written.
"""

from phalanx.ui.library import Library
from phalanx.ui.server import Server

__all__ = ["Library", "Server"]
