# The types of the public functions.  An array is NumPy's or PyTorch's; results are of the kind of the first.
from typing import Any, Literal, Optional, Sequence, Tuple, TypeVar, Union, overload

Array = TypeVar("Array")
__version__: str
__all__: list[str]

class FiveStepsError(ValueError):
    code: Optional[int]
    def __init__(self, message: str, code: Optional[int] = None) -> None: ...

class LibraryError(RuntimeError):
    code: int
    def __init__(self, code: int, message: str) -> None: ...

@overload
def attention(
    q: Array, k: Array, v: Array, *, causal: bool = False, scale: Any = None,
    window: Optional[Sequence[int]] = None, softcap: Optional[float] = None, sinks: Optional[Array] = None,
    bias: Optional[Array] = None, cu_seqlens_q: Optional[Array] = None, cu_seqlens_k: Optional[Array] = None,
    layout: str = "bhld", return_lse: Literal[False] = False, max_seqlen_q: Optional[int] = None,
    max_seqlen_k: Optional[int] = None, alibi_slopes: Optional[Array] = None, out: Optional[Array] = None,
    deterministic: bool = False, invariant: bool = False, q_scale: Any = None, k_scale: Any = None,
    v_scale: Any = None, kernel: Optional[str] = None,
) -> Array: ...
@overload
def attention(
    q: Array, k: Array, v: Array, *, causal: bool = False, scale: Any = None,
    window: Optional[Sequence[int]] = None, softcap: Optional[float] = None, sinks: Optional[Array] = None,
    bias: Optional[Array] = None, cu_seqlens_q: Optional[Array] = None, cu_seqlens_k: Optional[Array] = None,
    layout: str = "bhld", return_lse: Literal[True], max_seqlen_q: Optional[int] = None,
    max_seqlen_k: Optional[int] = None, alibi_slopes: Optional[Array] = None, out: Optional[Array] = None,
    deterministic: bool = False, invariant: bool = False, q_scale: Any = None, k_scale: Any = None,
    v_scale: Any = None, kernel: Optional[str] = None,
) -> Tuple[Array, Array]: ...
def append(
    k_new: Array, v_new: Array, k_pages: Array, v_pages: Array, page_table: Optional[Array],
    seqlen_k: Union[int, Array], *, layout: str = "heads_first", k_scale: Any = None, v_scale: Any = None,
) -> Any: ...
@overload
def decode(
    q: Array, k_pages: Array, v_pages: Array, page_table: Optional[Array], seqlen_k: Union[int, Array], *,
    scale: Any = None, window: Optional[int] = None, softcap: Optional[float] = None,
    sinks: Optional[Array] = None, alibi_slopes: Optional[Array] = None, layout: str = "heads_first",
    max_seqlen_k: Optional[int] = None, k_new: Optional[Array] = None, v_new: Optional[Array] = None,
    return_lse: Literal[False] = False, out: Optional[Array] = None,
    deterministic: bool = False, invariant: bool = False, q_scale: Any = None, k_scale: Any = None,
    v_scale: Any = None,
) -> Array: ...
@overload
def decode(
    q: Array, k_pages: Array, v_pages: Array, page_table: Optional[Array], seqlen_k: Union[int, Array], *,
    scale: Any = None, window: Optional[int] = None, softcap: Optional[float] = None,
    sinks: Optional[Array] = None, alibi_slopes: Optional[Array] = None, layout: str = "heads_first",
    max_seqlen_k: Optional[int] = None, k_new: Optional[Array] = None, v_new: Optional[Array] = None,
    return_lse: Literal[True], out: Optional[Array] = None,
    deterministic: bool = False, invariant: bool = False, q_scale: Any = None, k_scale: Any = None,
    v_scale: Any = None,
) -> Tuple[Array, Array]: ...
def scaled_dot_product_attention(
    query: Array, key: Array, value: Array, attn_mask: Optional[Array] = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: Optional[float] = None, enable_gqa: bool = False, *,
    seed: Optional[int] = None,
) -> Array: ...
def softmax(x: Array, dim: int = -1) -> Array: ...
def merge(o1: Array, lse1: Array, o2: Array, lse2: Array) -> Tuple[Array, Array]: ...
def quantise(x: Array, to: str = "float8_e4m3fn", *, smooth: bool = False, rotate: bool = False) -> Any: ...
def built_with() -> str: ...
