"""The share of attention on the first positions, against a whole table of probabilities."""

from __future__ import annotations

import numpy as np
import pytest

from pjdiag.position.sink_share import LogitRule, sink_share
from tests.position.backends import torch_array

LENGTH, FIRST = 37, 4


def expected(q, k, rule, first=FIRST):
    found = []
    length = q.shape[1]
    for head in range(q.shape[0]):
        key_head = head // (q.shape[0] // k.shape[0])
        shares = []
        for i in range(first, length):
            weights = {}
            for j in range(length):
                if j > i and rule.causal:
                    continue
                if rule.window is not None and abs(i - j) >= rule.window:
                    continue
                s = rule.scale * q[head, i] @ k[key_head, j]
                if rule.softcap is not None:
                    s = rule.softcap * np.tanh(s / rule.softcap)
                if j <= i and rule.bias_by_lag is not None:
                    s += rule.bias_by_lag[head][i - j]
                if j > i and rule.bias_ahead is not None:
                    s += rule.bias_ahead[head][j - i]
                weights[j] = np.exp(s)
            total = sum(weights.values())
            shares.append(sum(weights.get(j, 0.0) for j in range(first)) / total)
        found.append(np.mean(shares))
    return found


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("window", [None, 9])
@pytest.mark.parametrize("softcap", [None, 2.0])
@pytest.mark.parametrize("biased", [False, True])
def test_a_whole_table(array, causal, window, softcap, biased):
    rng = np.random.default_rng(1)
    q, k = rng.normal(size=(4, LENGTH, 3)), rng.normal(size=(2, LENGTH, 3))
    behind, ahead = rng.normal(size=(2, 4, LENGTH))
    rule = LogitRule(
        0.7, behind if biased else None, ahead if biased else None, causal, window, softcap
    )
    ours = LogitRule(
        0.7,
        array(behind) if biased else None,
        array(ahead) if biased else None,
        causal,
        window,
        softcap,
    )
    found = sink_share(array(q), array(k), FIRST, ours)
    np.testing.assert_allclose(np.asarray(found), expected(q, k, rule), rtol=1e-12)


def test_a_sample_of_queries_is_near_the_whole():
    rng = np.random.default_rng(2)
    q, k = rng.normal(size=(1, 2000, 4)), rng.normal(size=(1, 2000, 4))
    some, whole = (sink_share(q, k, 4, LogitRule(), most) for most in (256, 2000))
    assert some[0] == pytest.approx(whole[0], rel=0.3)
    assert some[0] != whole[0]


def test_no_later_query():
    zeros = torch_array(np.zeros((2, 4, 3)))
    assert np.isnan(np.asarray(sink_share(zeros, zeros, 4, LogitRule()))).all()
    assert np.asarray(sink_share(zeros, zeros, 0, LogitRule())).tolist() == [0.0, 0.0]
