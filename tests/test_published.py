"""Other people's figures: each has a source, a date and conditions, and the page shows them."""

from __future__ import annotations

import pandas as pd
import pytest

from helpers import published, recipes
from helpers.settings import DATA, CourseError


def test_every_row_says_who_when_and_under_which_conditions():
    frame = published.table()
    for column in ("what", "unit", "conditions", "source", "date"):
        assert frame[column].astype(str).str.len().gt(0).all(), column
    assert set(frame["origin"]) == {"published", "modelled"}
    counted, assumed = "counted by us", "our assumption"
    ours = frame["conditions"].str.startswith(counted) | frame["source"].eq(assumed)
    assert (frame.loc[ours, "origin"] == "modelled").all()
    assert frame["date"].str.match(r"20\d\d(-\d\d(-\d\d)?)?$").all()
    assert frame.index.is_unique


def test_a_source_has_one_name_and_one_date():
    """In all lists. And of the NVFP4 weights' card nobody here has read more than a digest."""
    lists = [
        pd.read_csv(DATA / name, dtype={"date": str}) for name in ("hub/files.csv", "hub/repositories.csv")
    ]
    rows = pd.concat([published.table().reset_index(), *lists])[["source", "date"]].drop_duplicates()
    assert not rows["source"].duplicated().any(), rows[rows["source"].duplicated(keep=False)]
    cards = rows[
        rows["source"].str.contains("card of the NVFP4|nvfp4.*card|repository's model card", case=False)
    ]
    assert len(cards) == 1
    assert "digest" in cards["source"].iloc[0]
    assert recipes.sources()["nvfp4-card"].endswith(cards["date"].iloc[0])


def test_parameters_of_phonellm_follow_from_its_shapes():
    """The layers' parameters, from the config's shapes: hidden size 2688, 23 Mamba, 23 MoE, 6 attention."""
    hidden, inner, conv, heads = 2688, 4096, 6144, 64
    mamba = hidden * (inner + conv + heads) + conv * 4 + conv + 3 * heads + inner + inner * hidden + hidden
    experts = 128 * 2 * hidden * 1856 + 2 * hidden * 3712
    moe = 128 * hidden + 128 + experts + hidden
    attention = 2 * hidden * 4096 + 2 * hidden * 256 + hidden
    outside = 2 * 131072 * hidden + hidden
    total = 23 * mamba + 23 * moe + 6 * attention + outside
    assert total == published.value("phonellm.parameters")


def test_a_row_that_is_not_there_is_named():
    with pytest.raises(CourseError, match=r"card\.nothing"):
        published.table("card.nothing")


def test_what_is_shown_has_the_source_beside_the_figure():
    shown = published.show("card.limit")
    assert shown["value"].iloc[0] == "1500 ms"
    assert "model card" in shown["source"].iloc[0]


def test_our_own_arithmetic_is_not_shown_as_published():
    shown = published.show("b200.card_agents", "b200.spoken_share")
    assert list(shown["origin"]) == ["published", "modelled"]
    assert "published" not in shown.columns
