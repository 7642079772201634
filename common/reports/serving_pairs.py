"""serving_pairs.py: the pairs of queries and keys of serving.py's problems, and how many a kernel
computes that takes whole blocks of keys."""
import random
import re


def pairs(lengths, left=None, causal=False):
    """Query-key pairs that are visible; causal squares count as exactly half."""
    if left is not None:
        return sum(sum(min(i, left) + 1 for i in range(n)) for n in lengths)
    return sum(n * n / (2 if causal else 1) for n in lengths)


def whole_blocks(n, left, keys, queries=64):
    """Pairs that are computed where each group of queries takes whole blocks of keys, from the
    first to the last that one of them sees."""
    computed = 0
    for first in range(0, n, queries):
        end = min(first + queries, n)
        blocks = -(-end // keys) - max(0, first - left) // keys
        computed += (end - first) * blocks * keys
    return computed


def keys_of_block(problem):
    """Keys in a block of the kernel that the library takes for the problem; None where it does not
    say so."""
    from five_steps import c_library
    found = re.search(r"queries, (\d+) keys", c_library.library().kernel(problem)[2])
    return int(found[1]) if found else None


def window_bound(n, h, d, left):
    """Visible over computed pairs of the kernel for a window, or None."""
    from five_steps import c_library
    keys = keys_of_block(c_library.AttentionProblem(
        device=c_library.GPU, type=c_library.BF16, batch=1, heads_q=h, heads_kv=h, seqlen_q=n,
        seqlen_k=n, head_dim=d, head_dim_v=d, window=1, window_left=left, window_right=0))
    return pairs([n], left=left) / whole_blocks(n, left, keys) if keys else None


def drawn(total, mean):
    """Lengths between a half and one and a half of the mean whose sum is total."""
    draw, lengths = random.Random(1), []
    while sum(lengths) < total:
        lengths.append(min(draw.randint(mean // 2, 3 * mean // 2), total - sum(lengths)))
    return lengths
