"""Results in a notebook."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pjdiag import api
from pjdiag.errors import DataError
from pjdiag.samples import sample


def test_a_notebook_shows_the_sentence_and_the_tables_as_text():
    result = api.mass(sample())
    shown = result._repr_html_()
    assert "Fourier-jet carries 79% of the effective mass" in shown
    assert "<table>" in shown
    named = replace(result, checkpoint={**result.checkpoint, "path": "<script>[/red]"})
    assert "&lt;script&gt;[/red]" in named._repr_html_()
    assert "<script>" not in named._repr_html_()


@pytest.mark.parametrize("name", ["mass", "energy", "loo", "stability"])
def test_a_plot_is_the_figure_of_the_report(name):
    figure = getattr(api, name)(sample()).plot()
    assert len(figure.data) >= 1
    assert figure.layout.title.text
    assert "--" not in figure.to_json().replace("---", "")


def test_a_plot_can_be_named():
    result = api.mass(sample())
    rows = result.select(scope="head", sector="lc", jet_order=None)
    cells = result.plot("share-lc").data[0].z
    for row in rows:
        assert cells[row["layer"]][row["head"]] == pytest.approx(row["sector_share"], rel=1e-4)
    with pytest.raises(DataError, match="no figure 'no-such'"):
        result.plot("no-such")


def test_a_result_without_a_figure_says_so():
    with pytest.raises(DataError, match="no figure of this inspect result"):
        api.inspect(sample()).plot()
