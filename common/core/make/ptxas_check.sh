#!/bin/sh
# ptxas_check.sh nvcc ARGUMENTS...: compiles, and fails when the assembler reports what a
# Hopper kernel must not have: registers spilled to memory, or a wgmma that it serialized,
# or a setmaxnreg that it ignored (messages C7508 to C7519: right, at half the speed).
# SPILLS=allowed looks for the messages only.
log=$(mktemp)
trap 'rm -f "$log"' EXIT
"$@" -Xptxas -v >"$log" 2>&1
status=$?
bad='C75(0[89]|1[0-9])'
[ "$SPILLS" = allowed ] || bad="$bad|[1-9][0-9]* bytes (stack frame|spill)"
if [ $status -ne 0 ] || grep -Eq "$bad" "$log"; then
    noise='^ptxas info *: (Compiling|Function|Used|[0-9]+ bytes gmem|Compile time)'
    grep -Ev "$noise" "$log" |
        grep -v ' 0 bytes stack frame, 0 bytes spill' | cut -c 1-300 >&2
    [ $status -ne 0 ] || echo "ptxas_check: spills or serialized wgmma" >&2
    exit 1
fi
