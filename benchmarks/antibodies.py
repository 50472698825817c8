"""The measured kernel of anarcii's antibody model, a custom class of ``nn.MultiheadAttention``.

``pip install --no-deps anarcii==2.0.8 gemmi msgpack psutil sortedcontainers``, then
``python benchmarks/antibodies.py -o anarcii.json``: about half a minute on one core. The encoder
reads the variable domains of eight antibodies in the clinic, the decoder the numbering that the
trained model gives them, in the controls too.
``pjdiag convert anarcii.json --by layer`` shows the tables.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch

import pjdiag

CHAINS = """
EVQLVESGGGLVQPGGSLRLSCAASGFNIKDTYIHWVRQAPGKGLEWVARIYPTNGYTRYADSVKGRFTISADTSKNTAYLQMNSLRAEDTAVYYC
SRWGGDGFYAMDYWGQGTLVTVSS
DIQMTQSPSSLSASVGDRVTITCRASQDVNTAVAWYQQKPGKAPKLLIYSASFLYSGVPSRFSGSRSGTDFTLTISSLQPEDFATYYC
QQHYTTPPTFGQGTKVEIK
EVQLVESGGGLVQPGRSLRLSCAASGFTFDDYAMHWVRQAPGKGLEWVSAITWNSGHIDYADSVEGRFTISRDNAKNSLYLQMNSLRAEDTAVYYC
AKVSYLSTASSLDYWGQGTLVTVSS
DIQMTQSPSSLSASVGDRVTITCRASQGIRNYLAWYQQKPGKAPKLLIYAASTLQSGVPSRFSGSGSGTDFTLTISSLQPEDVATYYC
QRYNRAPYTFGQGTKVEIK
QVQLQQPGAELVKPGASVKMSCKASGYTFTSYNMHWVKQTPGRGLEWIGAIYPGNGDTSYNQKFKGKATLTADKSSSTAYMQLSSLTSEDSAVYYC
ARSTYYGGDWYFNVWGAGTTVTVSA
QIVLSQSPAILSASPGEKVTMTCRASSSVSYIHWFQQKPGSSPKPWIYATSNLASGVPVRFSGSGSGTSYSLTISRVEAEDAATYYC
QQWTSNPPTFGGGTKLEIK
EVQLVESGGGLVQPGGSLRLSCAASGYTFTNYGMNWVRQAPGKGLEWVGWINTYTGEPTYAADFKRRFTFSLDTSKSTAYLQMNSLRAEDTAVYYC
AKYPHYYGSSHWYFDVWGQGTLVTVSS
DIQMTQSPSSLSASVGDRVTITCSASQDISNYLNWYQQKPGKAPKVLIYFTSSLHSGVPSRFSGSGSGTDFTLTISSLQPEDFATYYC
QQYSTVPWTFGQGTKVEIK
"""
"""Each as two lines: trastuzumab, adalimumab, rituximab and bevacizumab, heavy and light."""
PADDING, START, END, LONGEST = 0, 1, 2, 150


class Numbering:
    """The numbers that the trained model gives to a chain, which its decoder reads."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._known: dict[bytes, torch.Tensor] = {}

    def __call__(self, source: torch.Tensor) -> torch.Tensor:
        """``[1, T]``, each the likeliest after those before it."""
        key = source.numpy().tobytes()
        if key not in self._known:
            target = torch.tensor([[START]])
            while target.shape[1] < LONGEST and int(target[0, -1]) != END:
                after = decode(self._model, source, target)[:, -1:].argmax(-1)
                target = torch.cat([target, after], dim=1)
            self._known[key] = target[:, :-1]
        return self._known[key]


def decode(model: Any, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Logits of the decoder. The model's own forward prints shapes, so it is not called."""
    hidden = source == PADDING
    encoded = model.encoder(source, hidden)
    logits: torch.Tensor = model.decoder(target, encoded, target == PADDING, None, hidden)[0]
    return logits


def chains() -> np.ndarray:
    """``[8, T]`` ids of the amino acids, -1 on padding."""
    from anarcii.input_data_processing.tokeniser import NumberingTokeniser

    tokenizer = NumberingTokeniser("protein_antibody")
    lines = CHAINS.split()
    whole = [first + second for first, second in zip(lines[::2], lines[1::2], strict=True)]
    rows = [tokenizer.encode(["<SOS>", *chain, "<EOS>"]) for chain in whole]
    ids = np.full((len(rows), max(map(len, rows))), -1, dtype=np.int64)
    for row, found in zip(ids, rows, strict=True):
        row[: len(found)] = found
    return ids


def main() -> None:
    """Measures and writes the result."""
    from anarcii.inference.model_loader import Loader

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=Path("anarcii.json"))
    output = parser.parse_args().output
    model, numberer = (Loader("antibody", "accuracy", torch.device("cpu")).model for _ in range(2))
    numbering = Numbering(numberer)

    def run(model: Any, ids: torch.Tensor) -> None:
        source = ids.clamp(min=PADDING)
        decode(model, source, numbering(source))

    ids = chains()
    live = pjdiag.live(model, run=run, train_length=210)  # positions of its tables
    result = pjdiag.kernel(live, ids, windows=len(ids))
    output.write_text(result.to_json(), encoding="utf-8")
    print(f"wrote {output}")


if __name__ == "__main__":
    main()
