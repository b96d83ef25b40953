"""The figures in the repository are what the recorded runs give, byte for byte."""

from __future__ import annotations

from helpers import gallery


def test_the_readmes_figure_is_what_the_recorded_run_gives(tmp_path):
    for made in gallery.two_replies(tmp_path):
        assert made.read_bytes() == (gallery.FOLDER / made.name).read_bytes(), f"{made.name}: make record"
