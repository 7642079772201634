#!/usr/bin/env python3
"""Writes wgmma.h: one wrapper for each shape of wgmma that the kernels use.

wgmma takes its accumulators as a list of single registers, so a wrapper for N columns
names N/2 operands, and only a program should type them.     python3 wgmma.py > wgmma.h
"""

SIZES = (64, 128, 256)
TYPES = (("__nv_bfloat16", "bf16"), ("__half", "f16"))

HEAD = """/* wgmma.h: made by wgmma.py; do not edit.
 *
 * D (64 x N, float, in registers) = A (64 x 16) B (16 x N), by one warpgroup:
 *   qk_first  D  = A B   A and B in shared memory, head_dim running fastest in both; D is
 *                        write-only, so the compiler knows that its old value is dead
 *   qk        D += A B   the same, adding
 *   held_first, held     the same two with A in registers
 *   pv        D += A B   A in registers (the P fragment), B = V in shared memory, whose
 *                        rows are the reduction: the transpose bit reads it across
 * Descriptors and fragments: hopper.h.  Asynchronous: wgmma_wait() before D is read. */
#ifndef WGMMA_H
#define WGMMA_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

template <class T, int N> struct wgmma;
"""


def fold(words, indent, width=88):
    """Words as comma-separated lines of at most width characters."""
    lines, line = [], ""
    for i, word in enumerate(words):
        word += "," if i + 1 < len(words) else ""
        if line and len(indent) + len(line) + 1 + len(word) > width:
            lines.append(indent + line)
            line = word
        else:
            line += (" " if line else "") + word
    return "\n".join(lines + [indent + line])


def literals(words):
    """Words as string literals, one a line."""
    return "\n".join('            "' + line.strip() + '"'
                     for line in fold(words, "", 72).split("\n"))


def function(name, n, suffix, first, registers, across=0):
    """One wrapper: first = overwrite D, registers = A is a fragment, across = B is V."""
    count = n // 2
    d = [f"%{i}" for i in range(count)]
    at = count
    if registers:
        a, at = "{" + ", ".join(f"%{at + i}" for i in range(4)) + "}", at + 4
        args = "const uint32_t *a, uint64_t b"
        inputs = ['"r"(a[0])', '"r"(a[1])', '"r"(a[2])', '"r"(a[3])', '"l"(b)']
        tail = f"1, 1, {across}"
    else:
        a, at = f"%{at}", at + 1
        args = "uint64_t a, uint64_t b"
        inputs = ['"l"(a)', '"l"(b)']
        tail = "1, 1, 0, 0"
    mode = "=f" if first else "+f"
    outputs = [f'"{mode}"(d[{i}])' for i in range(count)]
    print("    static __device__ __forceinline__ void")
    print(f"    {name}(float (&d)[{count}], {args})")
    print("    {")
    print('        asm volatile("{\\n.reg .pred p;\\nsetp.ne.b32 p, '
          f'{0 if first else 1}, 0;\\n"')
    print('            "wgmma.mma_async.sync.aligned"')
    print(f'            ".m64n{n}k16.f32.{suffix}.{suffix} {{"')
    print(literals(d))
    print(f'            "}}, {a}, %{at}, p, {tail};\\n}}\\n"')
    print("            :\n" + fold(outputs, "            "))
    print("            : " + ", ".join(inputs) + ");")
    print("    }")


print(HEAD)
for n in SIZES:
    for ctype, suffix in TYPES:
        print(f"template <> struct wgmma<{ctype}, {n}> {{")
        function("qk_first", n, suffix, True, False)
        function("qk", n, suffix, False, False)
        function("held_first", n, suffix, True, True)
        function("held", n, suffix, False, True)
        function("pv", n, suffix, False, True, 1)
        print("};\n")
print("#endif")
