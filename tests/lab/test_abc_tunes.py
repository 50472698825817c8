"""ABC notation as notes, against tunes worked out by hand."""

from __future__ import annotations

from fractions import Fraction

import pytest

from pjdiag.lab.abc_tunes import BAR, key_signature, tunes

SLOW = """X:1
T:A tune, not a note
M:3/4
L:1/8
K:Am % a comment
"Am"{cd}A2 (B>c) !trill!e2 | [Ace]4 z2- | A,/a/ c'3 ~E- | E2 =F ^f F F |]
w:words
"""


def pitches(body: str, head: str = "L:1/8\nK:C") -> list[int | None]:
    """Of the one tune with this body."""
    [tune] = tunes(f"X:1\n{head}\n{body}")
    return [event[0] for event in tune if not isinstance(event, str)]


def lengths(body: str, head: str = "L:1/8\nK:C") -> list[str]:
    """Durations in eighths."""
    [tune] = tunes(f"X:1\n{head}\n{body}")
    return [str(8 * event[1]) for event in tune if not isinstance(event, str)]


def test_a_tune_by_hand():
    [tune] = tunes(SLOW)
    assert [e if e == BAR else (e[0], str(8 * e[1])) for e in tune] == [
        (69, "2"),
        (71, "3/2"),
        (72, "1/2"),
        (76, "2"),
        BAR,
        (76, "4"),
        (None, "2"),
        BAR,
        (57, "1/2"),
        (81, "1/2"),
        (84, "3"),
        (64, "3"),
        BAR,
        (65, "1"),
        (78, "1"),
        (65, "1"),
        (65, "1"),
        BAR,
    ]


def test_bars_of_a_tune_are_as_long_as_its_meter():
    [tune] = tunes("X:1\nM:6/8\nL:1/8\nK:G\nGAB c2d|(3efg f>e d/c/B|A3- A<G (2FG|")
    # a dotted quarter tied to a short note, its long neighbour, two notes in the time of three
    bars, total = [], Fraction(0)
    for event in tune:
        if isinstance(event, str):
            bars.append(total)
            total = Fraction(0)
        else:
            total += event[1]
    assert bars == [Fraction(6, 8), Fraction(6, 8), Fraction(8, 8)]


@pytest.mark.parametrize(
    ("key", "sharps", "flats"),
    [
        ("C", "", ""),
        ("G", "F", ""),
        ("D", "FC", ""),
        ("Amix", "FC", ""),
        ("A Dorian", "F", ""),
        ("EMin", "F", ""),
        ("Gm", "", "BE"),
        ("Bphr", "F", ""),
        ("Glyd", "FC", ""),
        ("Eb", "", "BEA"),
        ("F#m", "FCG", ""),
        ("Hp", "", ""),
        ("", "", ""),
    ],
)
def test_key_signatures(key, sharps, flats):
    assert key_signature(key) == {**dict.fromkeys(sharps, 1), **dict.fromkeys(flats, -1)}


def test_the_key_holds_until_another():
    assert pitches("f|[K:C]f|\nK:D\nf") != pitches("f|f|f")
    assert pitches("f|[K:C]f|\nK:D\nf", "L:1/8\nK:G") == [78, 77, 78]


def test_an_accidental_holds_for_its_bar_and_its_octave():
    assert pitches("^f f F =f f|f _B ^^c __d") == [78, 78, 65, 77, 77, 77, 70, 74, 72]


def test_octaves():
    assert pitches("C, C c c' B,,") == [48, 60, 72, 84, 47]


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("A2 A/ A/2 A// A3/2", ["2", "1/2", "1/2", "1/4", "3/2"]),
        ("A>B c<d e>>f", ["3/2", "1/2", "1/2", "3/2", "7/4", "1/4"]),
        ("(3ABc d (2ef (4gabc'", ["2/3"] * 3 + ["1"] + ["3/2"] * 2 + ["3/4"] * 4),
        ("(3:2:2AB c", ["2/3", "2/3", "1"]),
        ("A-A B2-|B A-B", ["2", "3", "1", "1"]),
        ("z2 x/ [CE]3", ["2", "1/2", "3"]),
    ],
)
def test_durations(body, found):
    assert lengths(body) == found


def test_without_a_unit_the_meter_decides():
    assert lengths("A", "M:2/4\nK:C") == ["1/2"]
    assert lengths("A", "M:3/4\nK:C") == ["1"]
    assert lengths("A", "M:C|\nK:C") == ["1"]


def test_bars_are_counted_once_and_repeats_are_not_played():
    [tune] = tunes("X:1\nL:1/8\nK:C\n|:A|B:|\n|:c::d||[1 e|[2 f|]")
    assert [event if event == BAR else event[0] for event in tune] == [
        *(69, BAR, 71, BAR, 72, BAR, 74, BAR, 76, BAR, 77, BAR),
    ]


def test_what_is_no_tune_of_one_voice_is_left_out():
    text = (
        "a file\n\nX:1\nL:1/8\nK:C\nA\nX:2\nV:1\nK:C\nA\n\nX:3\nT:no key\nA\n\nX:4\r\nK:C\r\nB|\r\n"
    )
    assert [tune[0][0] for tune in tunes(text)] == [69, 71]


def test_a_line_that_begins_with_a_note_and_a_repeat_is_no_field():
    assert pitches("A:|\nG::B") == [69, 67, 71]
