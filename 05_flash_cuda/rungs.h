/* rungs.h: the rungs of the ladder in order, and what each was expected to gain over the one
 * before.  The only list: variants.cu, the Makefile, the reports and the tests read it.  A new rung
 * is an entry here and a file portable/NN_name.cu or hopper/NN_name.cu.
 *
 *   RUNG(name, type that it is measured in, expected gain, reason, counters to look at)
 *   BESIDE(name)  a kernel that is no rung.  `run` takes the last in the list that can do a
 *                 problem, so it stands before the rung that is faster where both can; those
 *                 for few queries alone come last
 *   GRADIENT(name, the rungs that it is compared with, expected gain, reason)  a rung of the ladder of
 *                   the backward pass, backward/NN_name.cu.  Who includes this list for the forward
 *                   pass alone leaves the macro undefined */
#ifndef GRADIENT
#define GRADIENT(name, ...)
#endif
BESIDE(general_tiled)
BESIDE(invariant)
RUNG(tiled, F32, "", "", "")
RUNG(register_tiled, F32, "3 to 4",
     "rung 1 reads shared memory once for each product, which feeds a quarter of the multiply-adds; of R + C numbers read rung 2 makes R C products",
     "fma_pct shared_pct")
RUNG(tensor_cores, BF16, "4 to 6",
     "products leave the float32 units; what remains is a warp's chain of load, barrier, product and exponential: a quarter to a third of the 620 TFLOP/s of mma.sync",
     "tensor_pct shared_pct")
RUNG(async_copies, BF16, "1.3 to 1.6",
     "copies overlap the products of the block before; shared memory and the chain of each warp stay as they were",
     "tensor_pct shared_pct")
RUNG(larger_tiles, BF16, "1.3 to 1.5",
     "32 queries per warp halve the reads of shared memory for each product",
     "tensor_pct shared_pct")
BESIDE(general_mma)
RUNG(lazy_rescaling, BF16, "1.05 to 1.1",
     "o is scaled a few times per row instead of once per block: d / Bc of about 5.5 instructions per score",
     "tensor_pct issue_pct")
RUNG(tma, BF16, "1.0 to 1.1",
     "one thread issues what 128 did: the addresses of copies leave the loop, 1 of 8 instructions; the products stay as they were",
     "tensor_pct issue_pct")
RUNG(wgmma, BF16, "1.2 to 1.6",
     "wgmma does 1.6 times the products of mma.sync per clock and reads K and V from shared memory itself",
     "tensor_pct issue_pct")
RUNG(warp_specialized, BF16, "1.3; d = 64 1.2",
     "copies no longer wait for the warpgroup that computes; published kernels gain this much; at d = 64 exponentials take as long as products, so four consumers must share the two units",
     "tensor_pct warps_pct exp_pct")
RUNG(ping_pong, BF16, "1.1",
     "one consumer takes exponentials, half of the time of the products at d = 128, while the other multiplies",
     "tensor_pct")
RUNG(intra_warpgroup_overlap, BF16, "1.1",
     "the tensor cores have P V to do while the same consumer computes its softmax",
     "tensor_pct")
RUNG(heavy_first, BF16, "1.0",
     "without a mask 15.5 waves of equal tiles lose 3 %; with one, blocks that take the heaviest tile left all end at about the same time, as they do by the hardware's order",
     "tensor_pct")
RUNG(first_block_max, BF16, "1.1; d = 256 1.0",
     "no maximum, no exchange between lanes, no rescaling: 1 of 4 instructions per score less",
     "tensor_pct issue_pct clock_ghz")
BESIDE(eight_bits_e4m3)
BESIDE(eight_bits_sums)
BESIDE(eight_bits_wide_values)
BESIDE(eight_bits_int8)
BESIDE(general)
RUNG(tuned, BF16, "1.02; d = 64 1.05",
     "small things, each of 1 to 4 % at some lengths; at d = 64 consumers that multiply one after another do not take exponentials at the same time",
     "tensor_pct issue_pct clock_ghz")
BESIDE(split_kv)
BESIDE(split_kv_f32)
BESIDE(split_kv_cache)
GRADIENT(gradient_atomics, "", "", "")
GRADIENT(gradient_two_kernels, "gradient_atomics", "0.7 to 1",
         "seven products in place of five; no atomics")
GRADIENT(gradient_mma_sync, "", "", "16 bits from here on, where rungs 1 and 2 do not compute")
GRADIENT(gradient_wgmma, "gradient_mma_sync", "1.7 to 3",
         "TMA, wgmma and a producer gave 1.7 in the forward ladder; each dq is added to half as often, four numbers at a time")
GRADIENT(gradient_overlap, "gradient_wgmma", "1.3 to 1.4",
         "p and ds of a tile take a third to a half of the time of its products, and nobody multiplies meanwhile")
GRADIENT(gradient_wide_heads, "gradient_mma_sync", "3 to 4",
         "the gain of rungs 4 and 5 together")
GRADIENT(gradient_narrow_heads, "gradient_overlap", "1.05 to 1.2",
         "rung 5 uses the tensor cores for 62 % of the cycles at d = 64; a third consumer multiplies while two compute")
GRADIENT(gradient_in_order, "gradient_narrow_heads gradient_overlap gradient_wide_heads", "0.9 to 1",
         "blocks wait for those before them; nobody sets dq to 0")
