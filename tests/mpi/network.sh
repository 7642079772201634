#!/bin/sh
# network.sh BUILD: stage 4 on two "hosts" of this machine: network namespaces joined by a pair of
# virtual cables.  The ranks can reach one another by this network alone, so a launch that works
# here works over a network.  77, with the reason, where namespaces are not permitted.
set -u
build=$1
program=$(cd "$build" && pwd)/04_monoid_tiled_cpu_mpi
here=$(cd "$(dirname "$0")/../.." && pwd)
name=five$$
skip() { echo "skipped: network: $1"; exit 77; }
command -v ip >/dev/null 2>&1 || skip "there is no ip (iproute2)"
command -v mpirun >/dev/null 2>&1 || skip "there is no mpirun"
[ -x "$program" ] || skip "$program was not built"
place=$(mktemp -d) || exit 1
clean() {
    ip netns del ${name}a 2>/dev/null
    ip netns del ${name}b 2>/dev/null
    rm -rf "$place"
}
trap clean EXIT
ip netns add ${name}a 2>"$place/err" && ip netns add ${name}b 2>"$place/err" ||
    skip "ip netns add: $(head -n 1 "$place/err")"
ip link add ${name}x netns ${name}a type veth peer name ${name}y netns ${name}b 2>"$place/err" ||
    skip "a veth pair: $(head -n 1 "$place/err")"
for side in a:x:1 b:y:2; do
    n=${name}${side%%:*} cable=${side#*:}
    cable=$name${cable%:*} address=10.77.5.${side##*:}
    ip -n "$n" addr add "$address/24" dev "$cable" && ip -n "$n" link set "$cable" up &&
        ip -n "$n" link set lo up || skip "an address for $cable"
done

# mpirun starts its daemon on the other "host" by this instead of ssh.
cat >"$place/agent" <<AGENT
#!/bin/sh
shift
exec ip netns exec ${name}b sh -c "\$*"
AGENT
chmod +x "$place/agent"
printf '10.77.5.1 slots=1\n10.77.5.2 slots=1\n' >"$place/hosts"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMP_NUM_THREADS=1
f=$here/tests/fixture
ip netns exec ${name}a timeout 120 mpirun --hostfile "$place/hosts" -n 2 --map-by node \
    --mca plm_rsh_agent "$place/agent" --mca btl tcp,self --mca btl_tcp_if_include 10.77.5.0/24 \
    --mca oob_tcp_if_include 10.77.5.0/24 --mca mpi_yield_when_idle 1 \
    "$program" run --q "$f/q.npy" --k "$f/k.npy" --v "$f/v.npy" --causal --strategy ring \
    --o "$place/o.npy" >"$place/out" 2>"$place/err"
status=$?
sent=$(ip -n ${name}a -s link show ${name}x | awk '/TX:/ { getline; print $1 }')
if [ $status -ne 0 ]; then
    echo "FAILED: exit $status"
    tail -n 10 "$place/err"
    exit 1
fi
OMP_NUM_THREADS=1 "$build/04_monoid_tiled_cpu" run --q "$f/q.npy" --k "$f/k.npy" --v "$f/v.npy" \
    --causal --o "$place/one.npy" >/dev/null || exit 1
sh "$here/tests/mpi/near.sh" "$place/o.npy" "$place/one.npy" || exit 1
[ "$sent" -gt 100000 ] || { echo "FAILED: only $sent bytes went through the cable"; exit 1; }
echo "network: two hosts, $sent bytes through the cable of the first"
