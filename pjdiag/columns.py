"""Every column of every result: its name, its unit and its meaning."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Column:
    """A figure's name, its unit and its meaning.

    ``kind`` is one of ``text``, ``count``, ``share`` (0 to 1), ``ratio``, ``real``, ``flag``,
    ``list``.
    """

    name: str
    kind: str
    unit: str
    meaning: str


def _columns(*columns: tuple[str, str, str, str]) -> tuple[Column, ...]:
    return tuple(Column(*column) for column in columns)


SCOPE_COLUMNS = _columns(
    ("layer", "count", "", "layer index from 0; null in the model aggregate"),
    ("head", "count", "", "query head index from 0; null in aggregates"),
    ("scope", "text", "", "model, layer or head"),
    ("mechanism", "text", "", "position mechanism; null where several are aggregated"),
)

_SOURCED_FIELDS = _columns(
    ("num_heads", "count", "", "query heads"),
    ("num_kv_heads", "count", "", "key-value heads"),
    ("head_dim", "count", "", "channels of a head"),
    ("rope_layout", "text", "", "which channels form a pair: half or interleaved"),
    ("rope_theta", "real", "", "base of the rotary frequencies"),
    (
        "rope_type",
        "text",
        "",
        "rule of the frequencies: default, linear, dynamic, yarn, longrope, llama3 ...",
    ),
    ("rotary_dim", "count", "", "channels of a head that are rotated"),
    ("inv_freq", "list", "rad/token", "rotary frequencies at the stated length"),
    ("attention_factor", "real", "", "factor on cos and sin (YaRN)"),
    ("scale", "real", "", "factor on the logits, usually 1/sqrt(head_dim)"),
    ("window", "count", "tokens", "sliding window, the token itself included; null: none"),
    ("slopes", "list", "1/token", "ALiBi slope of each head; null where learned or absent"),
    ("causal", "flag", "", "a query sees earlier keys only"),
    ("softcap", "real", "logit", "logits are softcap tanh(logits / softcap); null: none"),
    ("qk_norm", "text", "", "norm of queries and keys; null: none"),
    ("sinks", "flag", "", "a learned logit takes part in each softmax without a key"),
    ("shared_kv_layer", "count", "", "layer whose keys are read instead of its own; null: none"),
    ("num_buckets", "count", "", "entries of a tabulated bias"),
    ("max_distance", "count", "tokens", "lag from which on one bucket serves all"),
    ("max_positions", "count", "tokens", "positions that a learned absolute table covers"),
)

DIAGNOSTICS: dict[str, tuple[Column, ...]] = {
    "inspect": (
        *_columns(
            ("sectors", "list", "", "sectors of position space this mechanism can use"),
            ("max_order", "count", "", "highest jet order R"),
        ),
        *(
            column
            for field in _SOURCED_FIELDS
            for column in (
                field,
                Column(f"{field.name}_source", "text", "", f"where {field.name} comes from"),
            )
        ),
    ),
    "mass": _columns(
        ("family", "text", "", "additive or multiplicative; shares never cross families"),
        ("sector", "text", "", "fj, affine, lc; fj+lc for the pooled order shares"),
        ("jet_order", "count", "", "jet order r; affine is order 1; null in a sector's row"),
        ("effective_mass", "real", "logit", "g alpha_r |zeta_r|, or g |s| for affine"),
        ("order_share", "share", "", "FJ+LC mass at order r over all FJ+LC mass"),
        ("sector_share", "share", "", "mass of the sector over the mass of all sectors"),
        ("sector_gate", "share", "", "gate of the sector; mean over heads in aggregates"),
        ("mean_order", "real", "", "mass-weighted mean jet order"),
    ),
    "spectrum": _columns(
        ("channel", "count", "", "rotary channel; null in a band's row and where layers differ"),
        ("inv_freq", "real", "rad/token", "frequency of the channel; null in a band's row"),
        ("wavelength", "real", "tokens", "2 pi / |inv_freq|; null: unknown, or it does not turn"),
        (
            "band",
            "text",
            "",
            "local: below 16 tokens; beyond: above the train length; mid: between",
        ),
        ("jet_order", "count", "", "jet order r; null in a band's row: all orders"),
        ("mass", "real", "logit", "size of the channel's bilinear form of queries and keys"),
        ("share", "share", "", "mass over the mass of all rotary channels in this scope"),
        ("query_norm", "real", "", "RMS over tokens and heads of |q| in these channels, on data"),
        ("key_norm", "real", "", "RMS over tokens and heads of |k| in these channels, on data"),
        ("data_mass", "real", "logit", "scale |q| |k| on data, summed over channels and heads"),
        ("data_share", "share", "", "data_mass over that of all rotary channels in this scope"),
        ("character", "real", "logit", "scale |mean r_c| on data: amplitude at this frequency"),
        ("flatness", "share", "", "|mean r_c|^2 over the mean |r_c|^2; 1: a Fourier character"),
        ("line_share", "share", "", "of the mean |r_c|^2, what a line in the lag adds: a jet"),
    ),
    "energy": _columns(
        ("sector", "text", "", "fj, affine, lc, or fj+lc pooled"),
        ("jet_order", "count", "", "jet order r"),
        ("window", "count", "tokens", "number of lags T"),
        ("bucket", "text", "", "lag bucket relative to the train length; all: lags 0..T-1"),
        ("lag_weights", "text", "", "uniform, or causal (T - d)"),
        ("centred", "flag", "", "each row's mean over its lags is taken out first"),
        ("functional_energy", "ratio", "", "||C_r|| / ||b_S||; exceeds 1 where orders cancel"),
        ("kernel_energy", "ratio", "", "||C|| / ||b||, b the full kernel with affine"),
        ("energy_share", "share", "", "||C||^2 over the sum of ||C||^2"),
        ("degenerate", "flag", "", "the denominator is below 1e-9 of the largest component"),
        ("fitted", "flag", "", "a fit to a tabulated bias, which has no parameters"),
        ("r2", "share", "", "part of the tabulated bias's variance over the window that is fitted"),
    ),
    "loo": _columns(
        ("removed", "text", "", "what was taken away: order:2, fj:2, sector:lc, band:local, alibi"),
        ("eval_length", "count", "tokens", "number of lags T; with data the length of the windows"),
        ("loo_delta_mse", "real", "logit^2", "mean (b-C-t)^2 - mean (b-t)^2; null with data"),
        ("prior_kl", "real", "nats", "mean KL(softmax b || softmax(b-C)); null with data"),
        ("loo_delta_nll", "real", "nats/token", "loss without the part less the loss with it"),
        (
            "ci_low",
            "real",
            "nats/token",
            "paired bootstrap 95% interval; null with fewer than 4 windows",
        ),
        ("ci_high", "real", "nats/token", "its upper end"),
        ("control_delta_nll", "real", "nats/token", "the same, the part's entries of random sign"),
        ("control_low", "real", "nats/token", "its interval"),
        ("control_high", "real", "nats/token", "its upper end"),
        ("attention_kl", "real", "nats", "mean KL(attention || attention without the part)"),
        ("windows", "count", "", "number of windows"),
        ("tokens", "count", "", "predicted tokens, all windows together"),
    ),
    "probe": _columns(
        ("variant", "text", "", "whose codes: checkpoint, or a named coordinate; null: in-model"),
        ("family", "text", "", "additive or multiplicative; null where both are concatenated"),
        ("precision", "text", "", "fp32, int8 or int4 codes; null: in-model"),
        ("eval_length", "count", "tokens", "T: candidates are the lags 1..T-1; in-model: context"),
        ("bucket", "text", "", "lag bucket of the queries; null: in-model"),
        ("depth", "share", "", "in-model: where the pair stands, 0 to 1; null: all depths"),
        ("queries", "count", "", "number of query lags"),
        ("top1", "share", "", "nearest is the lag itself; in-model: the right value ranks first"),
        ("within_1", "share", "", "nearest neighbour is at most 1 lag away"),
        ("within_8", "share", "", "nearest neighbour is at most 8 lags away"),
        ("within_64", "share", "", "nearest neighbour is at most 64 lags away"),
        ("margin", "real", "cosine", "mean score of the lag minus the best other lag"),
        ("min_margin", "real", "cosine", "smallest margin over the queries"),
        ("ties", "real", "lags", "mean number of candidates within 1e-6 of the lag's own score"),
        ("norm_growth", "ratio", "", "mean norm of the codes in the bucket over that below L"),
        ("hard_pair_accuracy", "share", "", "trained decision: own lag against nearest confuser"),
        ("random_pair_accuracy", "share", "", "trained decision: own lag against a random one"),
        ("chance", "share", "", "top-1 of a random guess; the trained decision's is 0.5"),
        ("trials", "count", "", "in-model: number of contexts"),
        ("ci_low", "share", "", "in-model: Wilson 95% interval of top1"),
        ("ci_high", "share", "", "its upper end"),
        ("mean_rank", "real", "", "in-model: mean rank of the right value among the candidates"),
        ("other_key_top1", "share", "", "in-model: the same value is first, asked for another key"),
        ("retrieved", "flag", "", "in-model: top1 beats chance and other_key_top1, at 5% in all"),
    ),
    "stability": _columns(
        ("variant", "text", "", "whose kernel: checkpoint, or a named coordinate"),
        ("sector", "text", "", "fj, affine, lc; null: the whole kernel"),
        ("eval_length", "count", "tokens", "number of lags T"),
        ("bias_max", "real", "logit", "largest |b(d)|; over heads the largest"),
        ("bias_rms", "real", "logit", "root mean square of b(d) over the lags"),
        ("bias_std", "real", "logit", "deviation of b(d) with weights T - d"),
        ("attention_entropy", "real", "nats", "entropy of softmax(b), the last row's prior"),
        ("effective_support", "real", "tokens", "e^entropy"),
        ("mean_distance", "real", "tokens", "mean lag under softmax(b)"),
        ("norm_max", "real", "logit", "largest norm over orders of the amplitudes"),
        ("norm_final", "real", "logit", "that norm at the last lag"),
        ("norm_mean", "real", "logit", "that norm, mean over lags"),
        ("amplitude_max", "real", "logit", "largest amplitude of any order"),
        ("int8_error_tensor", "ratio", "", "int8 quantisation error, one step for all"),
        ("int8_error_order", "ratio", "", "int8 quantisation error, one step per order"),
        ("int4_error_tensor", "ratio", "", "int4 quantisation error, one step for all"),
        ("int4_error_order", "ratio", "", "int4 quantisation error, one step per order"),
        ("local_phase_ratio", "ratio", "", "mean phase increment per lag in the far half"),
        ("local_phase_ratio_final", "ratio", "", "the last phase increment"),
        ("far_phase_span", "real", "rad", "carrier phase from T/2 to T-1"),
        ("local_collision", "share", "", "far increments below 1e-3 rad"),
        ("wrapped_collision", "share", "", "far phases mod 2 pi nearer than 1e-3 rad to another"),
        ("wrapped_nearest", "real", "rad", "distance to the nearest far phase, lower median"),
        ("condition_number", "real", "", "of the standardised far [A cos, A sin]; null: singular"),
        ("non_finite", "count", "", "amplitudes that are not finite"),
    ),
    "verify": _columns(
        ("subject", "text", "", "checkpoint: its own; standard: a transform of stated parameters"),
        ("transform", "text", "", "the mechanism, or the standard transform's name"),
        ("law", "text", "", "group, relative_score, *_growth, attention_logits, attention_output"),
        ("precision", "text", "", "float32 or float64"),
        ("eval_length", "count", "tokens", "length T of the window"),
        ("last_position", "count", "tokens", "last position measured: T-1, or before a clamp"),
        ("error", "ratio", "", "laws: over |q||k| or |K(a+b) e|; parity: over the largest figure"),
        ("tolerance", "ratio", "", "what rounding explains, at most 0.01 for a law"),
        ("growth", "ratio", "", "norm at the last position over that at 0, largest of the samples"),
        ("clamp_start", "real", "tokens", "30 / damping, where an exponent is clamped; null: none"),
        ("passed", "flag", "", "error within the tolerance; null where nothing is judged"),
        ("reason", "text", "", "why it fails, or what is checked"),
    ),
    "nll": _columns(
        ("eval_length", "count", "tokens", "context length T of the windows"),
        ("bucket", "text", "", "positions in the window relative to L; all: 0..T-1"),
        ("nll", "real", "nats/token", "mean negative log-likelihood of the next token"),
        ("ci_low", "real", "nats/token", "bootstrap 95% interval over windows; null with one"),
        ("ci_high", "real", "nats/token", "its upper end"),
        ("windows", "count", "", "number of windows"),
        ("tokens", "count", "", "predicted tokens in the bucket, all windows together"),
        ("attention_entropy", "real", "nats", "entropy of a query's attention; mean"),
        ("effective_support", "real", "tokens", "e^(mean entropy)"),
        ("mean_distance", "real", "tokens", "mean lag under a query's attention; mean"),
        ("sink_mass", "share", "", "attention on position 0; mean over the queries"),
    ),
    "kernel": _columns(
        ("side", "text", "", "past or future: keys before the query, itself included, or after"),
        ("control", "text", "", "shuffled: the tokens in random order; fresh: new weights"),
        ("statistic", "text", "", "median, p10 or p90 over heads; null in a head's row"),
        ("shape", "text", "", "compact shape fitted to the kernel"),
        ("group", "text", "", "sector-fit group: affine, F0.., LC0..; total, residual"),
        ("lag", "count", "tokens", "lag d of a point of the curve"),
        ("r2", "share", "", "part of the kernel's pair-weighted variance; residual: what is left"),
        ("bic", "real", "", "n ln(1 - r2) + (parameters + 1) ln n over n lags; the lowest wins"),
        ("preferred", "share", "", "BIC ranks the shape first; in aggregates the share of heads"),
        ("fitted_scale", "real", "tokens", "l, decay length, wavelength, or first lag of a step"),
        ("slope", "real", "logit", "fall per token (linear), or per unit of asinh(d/l)"),
        ("amplitude", "real", "logit", "of a decay or an oscillation; height of a step"),
        ("inv_freq", "real", "rad/token", "frequency of an oscillation; light cone: at lag 0"),
        ("unique_r2", "share", "", "what the sector fit loses without this group"),
        ("incremental_r2", "share", "", "what this group adds to those before it"),
        ("kernel", "real", "logit", "K(d) - K(0)"),
        ("standard_error", "real", "logit", "of K(d) - K(0), over windows; null with one"),
        ("range", "real", "logit", "largest minus smallest K(d), over well-measured lags"),
        ("decaying", "share", "", "the rapidity slope is above 0; in aggregates, share of heads"),
        ("lag_share", "share", "", "variance of K over that of the logits less row effects"),
        ("sink_share", "share", "", "attention on the first positions, which K leaves out"),
    ),
    "gate": _columns(
        ("rule", "text", "", "id of the rule; of --require the comparison itself"),
        ("metric", "text", "", "DIAGNOSTIC.COLUMN[key=value]: the figure that is checked"),
        ("requirement", "text", "", "what the figure must be, in words"),
        ("severity", "text", "", "error or warning"),
        ("status", "text", "", "passed, violated, inconclusive, suppressed, or known: as before"),
        ("met", "flag", "", "the figure meets its bounds; null where it does not tell"),
        ("value", "real", "", "the figure; for a fraction the share of places that meet the bound"),
        ("found", "text", "", "the words, of a column of words; value: 1 where they are as asked"),
        ("minimum", "real", "", "smallest value that is allowed; null: none"),
        ("maximum", "real", "", "largest value that is allowed; null: none"),
        ("baseline", "real", "", "the figure in the baseline"),
        ("change", "text", "", "against the baseline: new, unchanged or fixed"),
        ("reason", "text", "", "why the check has this status"),
        ("message", "text", "", "the rule's own message"),
        ("policy", "text", "", "file that holds the rule, or --require"),
        ("line", "count", "", "line of the rule in that file"),
        ("fingerprint", "text", "", "the same in every run for the same rule, metric and place"),
    ),
    "reproduce": _columns(
        ("experiment", "text", "", "name of the experiment"),
        ("subject", "text", "", "its target, teacher, corpus or task"),
        ("variant", "text", "", "basis, position method or coordinate; null: none is meant"),
        ("seed", "count", "", "seed of the run; null: over all seeds, or nothing is drawn"),
        ("eval_length", "count", "tokens", "length T at which it is measured"),
        ("part", "text", "", "what is removed or looked at: order:2, sector:affine, offset:+3"),
        ("figure", "text", "", "what is measured; a column of another diagnostic, where there is"),
        ("value", "real", "", "the figure, 6 digits; null: not defined"),
        ("unit", "text", "", "unit of the value"),
        ("ci_low", "real", "", "95% interval; null: none"),
        ("ci_high", "real", "", "its upper end"),
        ("n", "count", "", "what the value is over: seeds, restarts, questions, windows"),
    ),
}

KEYS: dict[str, tuple[str, ...]] = {
    "inspect": (),
    "mass": ("family", "sector", "jet_order"),
    "spectrum": ("channel", "band", "jet_order"),
    "energy": ("sector", "jet_order", "window", "bucket", "lag_weights", "centred"),
    "loo": ("removed", "eval_length"),
    "probe": ("variant", "family", "precision", "eval_length", "bucket", "depth"),
    "stability": ("variant", "sector", "eval_length"),
    "verify": ("subject", "transform", "law", "precision", "eval_length"),
    "nll": ("eval_length", "bucket"),
    "kernel": ("side", "control", "statistic", "shape", "group", "lag"),
}
"""Columns that say what a row is about; every other column of numbers is a figure."""
FIGURE_KINDS = ("count", "share", "ratio", "real", "flag")
"""Kinds of columns that hold a number."""


def _keys_of_all() -> tuple[Column, ...]:
    """Every key of every diagnostic, once."""
    found = {
        column.name: column
        for name, keys in KEYS.items()
        for column in DIAGNOSTICS[name]
        if column.name in keys
    }
    return tuple(
        Column(column.name, column.kind, column.unit, f"key: as in {_users(column.name)}")
        for column in found.values()
    )


def _users(key: str) -> str:
    return ", ".join(name for name, keys in KEYS.items() if key in keys)


DIAGNOSTICS["compare"] = (
    *_columns(
        ("measured", "text", "", "diagnostic that gave the figure"),
        ("figure", "text", "", "its column that is compared"),
    ),
    *_keys_of_all(),
    *_columns(
        ("compared", "text", "", "checkpoint of value_b; value_a is that of the first"),
        ("step", "count", "", "training step of value_b; null: unknown"),
        ("value_a", "real", "", "in the first checkpoint, in the unit of the figure's column"),
        ("value_b", "real", "", "in the other; null: the figure is not defined there"),
        ("text_a", "text", "", "in the first checkpoint, where words tell it; value_a is null"),
        ("text_b", "text", "", "in the other; the difference is then 1 where the words differ"),
        ("difference", "real", "", "value_b - value_a"),
        ("relative", "ratio", "", "difference over |value_a|; null where that is 0"),
        ("noise", "real", "", "95% half-width of the difference, where both have an interval"),
        ("within_noise", "flag", "", "|difference| is at most the noise; null without one"),
        ("moved", "ratio", "", "|difference|; over the figure's largest value unless a share"),
    ),
)
