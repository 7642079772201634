"""options.py: what a caller gives beside the arrays, checked."""
import operator

from .arrays import FiveStepsError, wants_gradient

FAR = 1 << 40  # no sequence is longer


def whole(name, value, least):
    """value as a Python integer."""
    try:
        number = operator.index(value)
    except TypeError:
        raise FiveStepsError(f"{name} is {value!r}; give a whole number") from None
    if number < least:
        raise FiveStepsError(f"{name} is {number}; give {least} or more")
    return number


def real(name, value):
    """value as a number, or 0.0 for None.  The library checks it, but would take one that vanishes in float32
    for what is not given."""
    if value is None:
        return 0.0
    if wants_gradient(value):
        raise FiveStepsError(f"{name} has a gradient, which is not computed here; give {name}.item()")
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise FiveStepsError(f"{name} is {value!r}; give a number") from None
    if 0 < abs(number) <= 2.0 ** -150 or (number == 0 and name == "scale"):
        raise FiveStepsError(f"{name} is {number}; give a number that is not 0 in float32")
    return number


def score_options(causal, scale, window, softcap):
    """(causal, left, right, softcap, scale): what acts on the scores, checked; 0 for what is not
    given, and -1 for no limit of the window."""
    left, right = -1, -1
    if window is not None:
        try:
            left, right = window
        except (TypeError, ValueError):
            raise FiveStepsError(f"window is {window!r}; give (left, right), -1 for no limit") from None
        left, right = (min(whole("window", w, -1), FAR) for w in (left, right))
    return bool(causal), left, right, real("softcap", softcap), real("scale", scale)


def score_fields(causal, left, right, softcap, scale, invariant, deterministic=False, dropout=0.0):
    """The same as fields of the problem, what is promised of the bits, and dropout."""
    return {"causal": causal, "window": (left, right) != (-1, -1), "window_left": left,
            "window_right": right, "softcap": softcap, "scale": scale, "invariant": invariant,
            "deterministic": deterministic, "dropout": dropout}


def attention_options(arrays, causal, scale, window, softcap, layout, max_seqlen_q, max_seqlen_k,
                      invariant, deterministic, dropout):
    """What a caller gave beside the arrays, checked: the rest of attention_call()'s arguments."""
    q, sums_q, sums_k = arrays[0], *arrays[6:8]
    if layout not in ("bhld", "blhd"):
        raise FiveStepsError(f"layout is '{layout}'; give 'bhld' or 'blhd'")
    if (sums_q is None) != (sums_k is None):
        raise FiveStepsError("cu_seqlens_q and cu_seqlens_k belong together; give both")
    packed = sums_q is not None
    rows_first = packed or layout == "blhd"
    if rows_first and hasattr(q, "ndim") and (q.ndim != 3 if packed else q.ndim < 3):
        raise FiveStepsError("packed arrays are [total, heads, head_dim]" if packed else
                             "layout 'blhd' needs [seqlen, heads, head_dim] or [batch, seqlen, "
                             "heads, head_dim]")
    return (whole("max_seqlen_q", max_seqlen_q or 0, 0), whole("max_seqlen_k", max_seqlen_k or 0, 0),
            *score_options(causal, scale, window, softcap), bool(invariant), bool(deterministic),
            dropout, rows_first)


def decode_options(scale, window, softcap, layout, invariant=False):
    """What a caller gave beside the arrays, checked: the rest of decode_call()'s arguments."""
    if layout not in ("heads_first", "pages_first"):
        raise FiveStepsError(f"layout is '{layout}'; give 'heads_first' or 'pages_first'")
    left = -1 if window is None else whole("window", window, 0)
    _, left, _, softcap, scale = score_options(False, scale, (left, -1), softcap)
    return left, softcap, scale, bool(invariant), layout == "pages_first"
