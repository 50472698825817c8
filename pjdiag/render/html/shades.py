"""Colours of a map, and the ink that can be read on each of them."""

from __future__ import annotations

from bisect import bisect_right

Colour = tuple[float, float, float]

CIVIDIS: tuple[tuple[float, Colour], ...] = (
    (0.0, (0, 32, 76)),
    (0.058824, (0, 42, 102)),
    (0.117647, (0, 52, 110)),
    (0.176471, (39, 63, 108)),
    (0.235294, (60, 74, 107)),
    (0.294118, (76, 85, 107)),
    (0.352941, (91, 95, 109)),
    (0.411765, (104, 106, 112)),
    (0.470588, (117, 117, 117)),
    (0.529412, (131, 129, 120)),
    (0.588235, (146, 140, 120)),
    (0.647059, (161, 152, 118)),
    (0.705882, (176, 165, 114)),
    (0.764706, (192, 177, 109)),
    (0.823529, (209, 191, 102)),
    (0.882353, (225, 204, 92)),
    (0.941176, (243, 219, 79)),
    (1.0, (255, 233, 69)),
)
"""Share of the range -> red, green, blue: even in lightness, the same for colour-blind eyes."""
SCALE = [[at, f"rgb({red},{green},{blue})"] for at, (red, green, blue) in CIVIDIS]
"""As plotly takes it."""
WHITE, BLACK = "#ffffff", "#000000"


def shade(share: float) -> Colour:
    """The colour at a share of the range; between two stops each part is linear.

    >>> shade(0.0), shade(1.0), shade(2.0)
    ((0, 32, 76), (255, 233, 69), (255, 233, 69))
    """
    share = min(max(share, 0.0), 1.0)
    above = min(bisect_right([at for at, _ in CIVIDIS], share), len(CIVIDIS) - 1)
    (low, under), (high, over) = CIVIDIS[above - 1 : above + 1]
    part = (share - low) / (high - low)
    if part >= 1.0:
        return over
    if part <= 0.0:
        return under
    red, green, blue = (a + part * (b - a) for a, b in zip(under, over, strict=True))
    return red, green, blue


def luminance(colour: Colour) -> float:
    """Relative luminance as WCAG 2 defines it, 0 black to 1 white.

    >>> luminance((255, 255, 255)), luminance((0, 0, 0))
    (1.0, 0.0)
    """
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in (value / 255 for value in colour)
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def ink(colour: Colour) -> str:
    """Black or white, whichever is told from ``colour`` better: always by 4.5 to 1 at least.

    The two ratios are ``(Y + 0.05) / 0.05`` and ``1.05 / (Y + 0.05)``; their product is 21.

    >>> ink((117, 117, 117)), ink((131, 129, 120))
    ('#ffffff', '#000000')
    """
    return BLACK if (luminance(colour) + 0.05) ** 2 > 0.05 * 1.05 else WHITE
