"""PostgreSQL 18 without an installation: a real server, run from the binaries in a wheel.

`EmbeddedPostgres` owns one data folder and the server on it; `pick_data_dir` decides where that
folder is. docs/adr/0003-embedded-postgresql.md says who runs the server and which files it may
touch.
"""

from coatcheck.db.embedded.folder import EmbeddedPostgresError, pick_data_dir
from coatcheck.db.embedded.server import EmbeddedPostgres, OnProgress, Phase, StopMode

__all__ = [
    "EmbeddedPostgres",
    "EmbeddedPostgresError",
    "OnProgress",
    "Phase",
    "StopMode",
    "pick_data_dir",
]
