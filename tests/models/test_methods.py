"""The method table against the lists of methods, written out again."""

import subprocess
import sys

from pjdiag.models.methods import METHODS
from pjdiag.position.rotary import RopeRule
from pjdiag.terms import Mechanism, Sector

WITHOUT_BIAS = [
    "none",
    "rope",
    "rope_pi",
    "rope_ntk",
    "rope_yarn",
    "pj_rotary",
    "grape_m_rope",
    "jordan",
    "pope",
]
AFFINE_ONLY = [
    "affine",
    "rope_affine",
    "rope_ntk_affine",
    "rope_yarn_affine",
    "grape_a_alibi",
    "grape_ma_rope_alibi",
]


def test_sectors() -> None:
    expected = {name: set() for name in WITHOUT_BIAS} | {
        name: {Sector.AFFINE} for name in AFFINE_ONLY
    }
    expected |= {
        "fj_affine": {Sector.FJ, Sector.AFFINE},
        "fj_lc": {Sector.FJ, Sector.LC},
        "lc_affine": {Sector.LC, Sector.AFFINE},
        "full": {Sector.FJ, Sector.AFFINE, Sector.LC},
    }
    assert {name: set(method.sectors) for name, method in METHODS.items()} == expected


def test_rotations() -> None:
    turning = {name for name, method in METHODS.items() if method.rotary == Mechanism.ROPE}
    assert turning == {name for name in METHODS if "rope" in name}
    assert all(METHODS[name].layout == "interleaved" for name in turning)
    others = {
        name: method.rotary
        for name, method in METHODS.items()
        if method.rotary not in (None, Mechanism.ROPE)
    }
    assert others == {
        "pj_rotary": Mechanism.PJ_ROTARY,
        "jordan": Mechanism.JORDAN,
        "pope": Mechanism.POPE,
    }
    assert METHODS["affine"].layout is None


def test_length_rules() -> None:
    rules = {
        name: method.rope_rule
        for name, method in METHODS.items()
        if method.rope_rule != RopeRule.DEFAULT
    }
    assert rules == {
        "rope_pi": RopeRule.LINEAR,
        "rope_ntk": RopeRule.NTK,
        "rope_ntk_affine": RopeRule.NTK,
        "rope_yarn": RopeRule.YARN,
        "rope_yarn_affine": RopeRule.YARN,
    }


def test_configurations_recipes_and_corpora_need_no_torch() -> None:
    program = (
        "import sys, pjdiag.models, pjdiag.models.config, pjdiag.models.methods, pjdiag.lab, "
        "pjdiag.lab.recipe, pjdiag.lab.corpora, pjdiag.lab.native, pjdiag.position\n"
        "print([m for m in ('torch', 'transformers', 'pandas', 'plotly') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
