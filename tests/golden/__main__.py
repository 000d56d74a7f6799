"""Writes the golden files anew: `python -m tests.golden [NAME…]`, from the root of the tree.

What has changed is for the review to see: something outside relies on each line.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from allswell.testing.postgres import Cluster
from tests.golden.surface import DECLARED, HERE, MADE, postgres_tables

for name in sys.argv[1:] or [*DECLARED, *MADE, "postgres"]:
    if name in DECLARED:
        text = DECLARED[name]()
    elif name in MADE:
        with tempfile.TemporaryDirectory(prefix="allswell-golden-") as place:
            text = MADE[name](Path(place))
    else:
        with Cluster() as cluster:
            text = postgres_tables(cluster.create_database())
    path = HERE / f"{name}.txt"
    path.write_text(text, encoding="utf-8")
    sys.stdout.write(f"{path} is written\n")
