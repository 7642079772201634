/* case_table.c: the cases, a family a row: recipes, and what their problems are like.
 *
 *     {"nan_k inf_k", "q=20 k=70 bias at=37,64 in=both,full"}
 *
 * gives four cases: each recipe with each item of the longest list.  A shorter list begins
 * anew, but that of `in` stays at its last item.  A word alone is 1.  What is left out is 1
 * (batch, heads), heads (kv), 64 (d), d (dv), 1/sqrt(d) (scale), or 0.  `in` is the part of the
 * suite: quick (check --quick), executed (small enough for CUDA kernels executed on the CPU),
 * both, gpu (too large for anything but a GPU), or full.
 *
 * Sizes sit on and around the edges of the tiles that the stages use (16, 32, 48, 64, 128,
 * 176 rows or keys).  A case is as small as its point allows, so that a scalar variant does
 * the whole list in a second or two. */
#include "verification/case_list.h"

static const struct cases softmax[] = {
    {"random", "rows=3 cols=1,2,3,8,17,31,33,64,129,257 in=both"},
    {"random", "rows=2 cols=1000,1025 in=both"},
    {"random", "rows=3 "
               "cols=4,5,7,9,13,15,16,32,47,48,49,63,65,97,127,128,175,176,177,255,256"},
    {"random", "rows=2 cols=511,512,513,1023,1024,2047,2048,2049,4095,4096,4097,10007"},
    {"random", "rows=1,257,64 cols=1,3,64 in=quick"},
    {"random", "rows=67 cols=3 in=both"}, /* several blocks of 128 / 4 rows */
    {"random", "rows=1000,1,1 cols=130,100003,1000003"},
    {"random", "rows=70001 cols=3"}, /* a grid's y has 65535 blocks */
    {"random", "rows=20 cols=33001"}, /* whole rows of several chunks: softmax_rows.h */
    {"random", "rows=1001 cols=20011 in=gpu"},
    {"wide", "rows=5 cols=2000003 in=gpu"},
    {"wide range_80 equal ascending descending shift_20 shift_200 shift_up low large "
     "vast mask_some mask_lanes tiny",
     "rows=4,3,2 cols=37,1025,20011 in=both,quick,full"},
    {"ascending descending", "rows=1 cols=4328"}, /* all factors err alike */
    {"outlier mask_but_one", "rows=2 cols=1030 in=quick"},
    {"outlier mask_but_one mask_first mask_last",
     "rows=2 cols=1030 at=31,127,1023,1,15,16,32,63,64,128,255,256,1024,1029 "
     "in=quick,quick,quick,full"},
    {"mask_middle", "rows=2 cols=513 at=64,1,448 in=both,full"},
    {"mask_row", "rows=3,1,2 cols=130,1,5000 at=1,0,0 in=both,both,full"},
    {"mask_first", "rows=1 cols=5001 at=5000"},
    {"nan_q inf_score", "rows=3,2 cols=70,3000 at=1,0 in=both,full"},
    {0}};

static const struct cases mean[] = {
    {"random", "rows=3 cols=1,2,3,7,16,17,64,100 in=both"},
    {"random", "rows=3 cols=1000,4097,100003"},
    {"equal ascending descending shift_up large near_max opposite tiny",
     "rows=2 cols=3,1000 in=both,quick"},
    {"equal", "rows=1 cols=3931,100003 in=quick,full"},
    {"nan_q", "rows=3 cols=50 at=1 in=both"},
    {0}};

static const struct cases fused[] = {
    {"random", "rows=3 cols=1,2,3,5,8,17,31,64,100,257 in=both"},
    {"random", "rows=3 cols=1000,4099,50021"},
    {"wide equal ascending descending outlier shift_20 shift_200 shift_up large",
     "rows=2 cols=37,1003 in=both,full"},
    {0}};

static const struct cases attention[] = {
    /* Every tile edge, alone and against another; more queries than keys and fewer. */
    {"random", "q=1,15,47,95,176,1 k=1,15,47,95,176,239 in=executed"},
    {"random", "q=5,63,1 k=5,63,239 causal in=executed"},
    {"random", "q=31,128,7,2,5 k=13,63,177,5,2 in=both"},
    {"random", "q=5,31,63,128,2,5,113,203 k=1,31,32,128,5,2,203,113 causal in=both"},
    {"random", "q=2,13,48,65 k=2,13,48,65 causal in=quick"},
    {"random", "q=32,3,176,7,175,17,17,32,129,16,49,64,15,127,127,13,129,97,255,95,257 "
               "k=2,3,5,7,16,17,31,32,33,48,49,64,65,97,127,128,129,175,255,256,257"},
    {"random", "q=65,3,64,16,2,33,1,49,257,48,97,256,47,175,255,177,33,256,177 "
               "k=3,7,15,16,17,33,47,49,64,95,97,127,129,175,176,177,255,256,257 causal"},
    {"random", "q=113,203 k=203,113"},
    {"random", "q=128,128,217,217,239,239,3,3,799,799,108,108,640,640,128,128 "
               "k=217,217,128,128,1,1,799,799,3,3,256,256,128,128,640,640 causal=0,1"},
    {"random", "q=1024,1,16 k=1023,20011,4099 d=32,40,64"},
    {"random", "q=1023 k=1024 causal"},
    /* Head dims, odd ones and two at once. */
    {"random", "q=37 k=67 d=1,40,59,128,256 in=both,both,both,both,quick"},
    {"random", "q=37 k=67 d=2,7,16,32,63,65,80,96,111,160,192"},
    {"random", "q=130 k=131 d=1,2,7,16,32,40,59,63,65,80,96,111,128,160,192,256 causal"},
    {"random", "q=35 k=70 d=64,128,40,1,64,7 dv=128,64,72,64,1,59 causal=0,1 "
               "in=both,both,both,both,quick"},
    {"random", "q=35 k=70 d=80,192,96,256,16,192 dv=96,128,33,16,256,192 causal=0,1 "
               "in=executed,executed,full,full,full,executed"},
    /* Batches and groups of heads. */
    {"random", "q=19 k=35 d=32 batch=2,1,2,1,3,2,1,1 heads=1,2,4,8,6,3,6,5 "
               "kv=1,1,2,1,3,3,2,5 in=both,both,both,full"},
    /* more tiles than blocks of threads that last */
    {"random", "q=130 k=200 heads=17 causal=0,1"},
    {"random", "q=19 k=35 d=32 dv=24 batch=2,1,2,1,3,2,1,1 heads=1,2,4,8,6,3,6,5 "
               "kv=1,1,2,1,3,3,2,5 causal bias in=full,full,both,full"},
    {"random", "q=66 k=130 batch=2,1,2,1,3,2,1,1 heads=1,2,4,8,6,3,6,5 "
               "kv=1,1,2,1,3,3,2,5 causal=0,1"},
    {"random", "q=1,1,17 k=5000,2,33 d=128,8,64 batch=1,1,3 heads=8,70000,50 "
               "kv=2,35000,50"},
    {"random", "q=4 k=3001 batch=2 heads=4 kv=1 causal"},
    /* a few more tiles than multiprocessors: the last ones are cut along their keys */
    {"random", "q=3 k=3400 heads=17 in=executed"},
    {"random", "q=1 k=2900 in=executed"}, /* more than 8 parts */
    {"below_step", "q=5,40 k=100,500 in=both,full"},
    /* Scores of every kind, small and over several tiles. */
    {"wide equal ascending descending shift_20 shift_200 low large vast zero_q markers "
     "tiny",
     "q=21,70,49,130 k=70,77,300,129 d=64,40,128,64 batch=1,1,1,2 causal=0,1,0,1 "
     "in=both,executed,full"},
    {"wide equal ascending descending shift_20 shift_200 low large vast zero_q markers "
     "tiny",
     "q=3 k=5 d=7 heads=2 in=quick"},
    {"wide equal ascending descending shift_20 shift_200 low large zero_q markers",
     "q=8 k=2050"},
    {"outlier", "q=33 k=300 at=0,47,128,299 in=quick"},
    {"outlier", "q=33 k=300 at=15,16,31,32,48,63,64,127,175,176,255,256"},
    {"outlier", "q=300 k=300 d=32 causal "
                "at=0,15,16,31,32,47,48,63,64,127,128,175,176,255,256,299"},
    {"outlier", "q=9 k=1,17,33,49,65,129 at=0,16,32,48,64,128 in=executed"},
    /* q = 0, and each key has a column of v: a key lost at any edge of any tile shows in 16 bits too */
    {"markers", "q=20,70 k=2060,530 d=64,128 in=both"},
    /* exact weights: a share of 1e-4 of anything shows in 16 bits */
    {"powers", "q=20,70,20 k=256,512,128 d=64,128,64 at=0,0,2048 scale=0.6931472 in=both"},
    {"powers", "q=37 k=128 bias in=both"},
    /* on the diagonal: the row before does not see the key, even of a repaired block */
    {"spike", "q=160 k=160 d=64,128,96,192 at=150 causal in=both"},
    /* every block has a new maximum */
    {"steep", "q=70 k=450 d=64,128,192 causal=0,1,0 in=executed"},
    /* A given scale, also one that turns the largest product into the smallest score, and
     * 0, by which nothing masked may be multiplied. */
    {"random", "q=21 k=70 scale=1.5,-0.25,0 in=both"},
    {"random", "q=21 k=17 causal scale=1.5,-0.25,0 in=executed"},
    {"mask_some", "q=21 k=150 bias scale=1.5,-0.25,0"},
    /* Masks. */
    {"random mask_some mask_lanes", "q=18 k=70 bias in=both"},
    {"random mask_some mask_row", "q=66 k=300 d=40 heads=2 kv=1 bias"},
    {"random", "q=70 k=130 causal bias in=executed"},
    {"shift_20 mask_some mask_lanes", "q=70 k=130 causal bias"},
    {"mask_row mask_middle", "q=18 k=70 bias at=3 in=both"},
    {"mask_row", "q=1 k=1 bias in=both"},
    {"mask_row", "q=70 k=130 causal bias at=69"},
    {"mask_first mask_last", "q=18 k=70 bias at=1,16,32,64,65 in=full,full,full,both"},
    {"mask_first", "q=70 k=130 causal bias at=1,16,32,64,65"},
    {"mask_first", "q=66 k=300 d=40 heads=2 kv=1 bias at=129,128,176,256,299 "
                   "in=quick,full"},
    {"mask_last", "q=66 k=300 d=40 heads=2 kv=1 bias at=128,129,176,256,299"},
    {"mask_but_one", "q=66 k=300 d=40 heads=2 kv=1 bias at=299,128,129,176,256 "
                     "in=quick,full"},
    {"mask_first", "q=18 k=70 bias at=70 in=both"}, /* nothing left */
    {"mask_first mask_but_one", "q=2 k=2112 bias at=2112,1000"}, /* in any part, in all but one */
    {"mask_middle", "q=70 k=130 causal bias at=64 in=executed"},
    {"mask_middle", "q=66 k=300 d=40 heads=2 kv=1 bias at=128 in=quick"},
    {"mask_but_one", "q=18 k=70 bias at=69 in=both"},
    /* more queries than keys: the first rows see nothing */
    {"zero_q", "q=100 k=33 causal in=both"},
    {"markers", "q=140 k=70 d=16 causal in=quick"},
    /* Masks that are numbers: beside others they weigh nothing, and in a row of nothing
     * else they are scores like any other. */
    {"finite", "q=18 k=70 bias at=4,9,11,15,30,38 in=both"},
    {"finite", "q=66 k=300 d=40 heads=2 kv=1 bias at=4,9,11,15,30,38"},
    /* With a bias the bad key is masked everywhere; causal hides it from earlier rows. */
    {"nan_k inf_k nan_v inf_v", "q=20 k=70 bias at=37,0,64,69 in=both,full"},
    {"nan_q nan_k nan_v nan_v_one nan_v_far minus_inf minus_inf_v minus_inf_all",
     "q=20 k=70 heads=2 at=11 in=both"},
    /* the first key, before there is a maximum */
    {"nan_q nan_k nan_v nan_v_one nan_v_far", "q=5 k=70 in=both"},
    {"nan_q", "q=9 k=130 at=64"},
    {"nan_k nan_v nan_v_one nan_v_far", "q=9 k=130 at=64 in=executed"},
    {"nan_q nan_k nan_v nan_v_one nan_v_far",
     "q=70,70,130 k=70,70,200 at=40,69,129 causal in=executed,full"},
    {"minus_inf minus_inf_v minus_inf_all",
     "q=1,5,70,20,130 k=130,70,70,70,1100 at=64,0,40,37,129 causal=0,0,1,0,0 "
     "bias=0,0,0,1,0 in=quick,full"},
    {"nan_q", "q=90 k=40 at=2 causal in=quick"}, /* a query that sees nothing */
    {"inf_score", "q=20 k=70,300 at=11,200 bias in=both,full"},
    /* Windows narrower and wider than a tile, one-sided, of one key, beside every mask. */
    {"random", "q=33 k=70 d=40 window=0:0,3:0,0:3,-1:4 in=both"},
    {"random", "q=33 k=70 d=40 window=7:5,4:-1,-1:-1,63:0,64:64,100:1 in=quick"},
    {"random", "q=130 k=130 d=40 window=-1:4 in=quick"},
    {"random", "q=130 k=130 d=40 causal=1,1,1,0,0 window=3:0,4:-1,63:0,0:3,64:64"},
    {"markers", "q=130 k=130 d=40 causal=0,1 window=0:0,7:5,-1:-1,100:1"},
    {"outlier", "q=300 k=290 at=150 window=0:0,0:3,-1:4,-1:-1,64:64"},
    {"shift_20", "q=300 k=290 at=150 causal window=3:0,7:5,4:-1,63:0,100:1"},
    /* several tiles, whose windows begin and end in different blocks; then windows so wide
     * that a kernel may take larger blocks */
    {"random", "q=200 k=300 window=70:20 in=both"},
    {"random", "q=200 k=2300 window=2100:0 in=executed"},
    /* more queries than keys: rows that see nothing, also behind the end of the window */
    {"random", "q=90 k=40 window=9:2 in=quick"},
    {"mask_some", "q=60 k=70 bias window=5:9 in=quick"},
    /* a bad key or value outside of every window that it could leak into */
    {"nan_v", "q=70 k=70 at=5 window=6:0 in=quick"},
    {"nan_k", "q=70 k=70 at=64 window=6:2 in=quick"},
    /* a step of decoding with a window: most keys lie before it */
    {"random", "q=1 k=700 heads=4 kv=2 causal window=127:0 in=quick"},
    {"random", "q=2 k=1500 window=600:0"},
    /* Soft caps and sinks. */
    {"random", "q=21,21,120 k=70,70,200 heads=5 kv=1 causal=0,0,1 cap=30,0,30 "
               "sinks=0,1,1 in=both,both,full"},
    {"wide", "q=21,21,120 k=70,70,200 heads=5 kv=1 causal=0,0,1 cap=50,0,50 "
             "sinks=0,1,1 in=both,both,quick"},
    {"large", "q=21 k=70 heads=5 kv=1 cap=0.5 in=both"},
    {"large", "q=120 k=200 heads=5 kv=1 causal cap=0.5 sinks"},
    {"shift_20", "q=21,120 k=70,200 heads=5 kv=1 causal=0,1 cap=15 sinks=0,1 "
                 "in=quick,full"},
    {"ascending", "q=21,120 k=70,200 heads=5 kv=1 causal=0,1 cap=2 sinks=0,1 "
                  "in=quick,full"},
    {"zero_q", "q=21,120 k=70,200 heads=5 kv=1 causal=0,1 cap=50 sinks=0,1 "
               "in=quick,full"},
    {"equal", "q=21,120 k=70,200 heads=5 kv=1 causal=0,1 cap=1 sinks=0,1 in=quick,full"},
    {"large shift_20 ascending zero_q equal", "q=21 k=70 heads=5 kv=1 sinks in=quick"},
    {"sink_inf sink_nan sink_huge",
     "q=9,40 k=70,20 heads=3,2 kv=1,2 causal=0,1 sinks in=both,full"},
    {"random", "q=9 k=70 cap=1e4,1e5,1e6,1e7,1e8 in=both"}, /* without effect */
    {"random zero_q", "q=9 k=70 cap=1e-40,1e-6 in=both"},
    {"mask_row", "q=18 k=70 heads=2 bias sinks at=3 in=quick"},
    {"mask_first", "q=18 k=70 bias sinks at=70 in=quick"},
    {"random", "q=70,1 k=33,3000 heads=1,2 causal=1,0 sinks in=quick,full"},
    {"nan_q", "q=9 k=70 cap=30 sinks at=3 in=quick"},
    {"mask_some", "q=9 k=70 bias cap=30 in=quick"},
    /* Strides, packed sequences, pages. */
    {"random", "q=37 k=67 batch=2 heads=4 kv=2 lie=blhd,qkv in=both"},
    {"random", "q=37,37,1,1 k=67,67,300,300 d=40 dv=24 batch=2 heads=4 kv=2 causal "
               "lie=blhd,qkv in=quick"},
    {"outlier", "q=130 k=129 d=128 batch=2 heads=4 kv=2 at=64 causal lie=blhd,qkv"},
    {"random", "q=70 k=90 batch=4 heads=2 causal=1,0 packed lie=blhd,qkv in=both"},
    {"random", "q=70 k=90 batch=4 heads=2 causal=1,0 page=16 lie=blhd,qkv in=quick"},
    {"random", "q=1 k=530 batch=3 heads=4 kv=2 page=16,32,64,256 in=quick,full"},
    {"random", "q=40 k=130 d=40 batch=3 heads=4 kv=2 causal page=64,16,32,256 "
               "in=quick,full"},
    {"markers", "q=40 k=130 d=40 batch=4 heads=4 kv=2 causal packed page=32,16,64,256 "
                "in=quick,full"},
    {"random", "q=1 k=300 batch=2 heads=4 kv=2 page=16 in=both"},
    {"random", "q=1 k=1 batch=4 packed in=both"},
    {"markers", "q=64 k=64 batch=6 packed in=quick"},
    {"random", "q=200 k=300 batch=5 heads=6 kv=2 causal packed"},
    {"random", "q=700 k=2500 batch=3 heads=2 causal packed in=gpu"},
    {"nan_v", "q=30 k=70 batch=4 causal packed at=5 in=quick"},
    /* of the sequences some have no key 64 or 209: a tile of theirs ends beside the bad one */
    {"nan_k", "q=7 k=230 d=64,128,256 batch=5 packed at=209,64,209 in=executed"},
    {"markers", "q=1,3,40 k=130 batch=4 heads=4 kv=2 causal lengths page=0,16 lie=contiguous,blhd "
                "in=both"},
    {"random", "q=1 k=700 d=128 batch=5 heads=4 kv=2 lengths page=64,0 window=90:0,-1:-1 sinks "
               "in=quick,full"},
    {"random", "q=1,1,2 k=200 d=64 batch=4 heads=4 kv=2 lengths page=48,16,80 window=90:0 sinks "
               "in=both"},
    /* the window's first key is a page's last one */
    {"markers", "q=1 k=128 heads=2 kv=1 page=16,64 window=64:0 at=63 in=both"},
    /* A bias for each batch, the same for all queries; for each head; for each of both; for
     * each distance of key and query. */
    {"random", "q=20 k=70 batch=2 heads=4 kv=2 bias bias_per=batch,head,both,toeplitz "
               "in=both"},
    {"random", "q=130 k=131 d=40 batch=2 heads=4 kv=2 causal bias "
               "bias_per=batch,head,both,toeplitz"},
    {"random", "q=130 k=131 d=40 batch=3 heads=4 kv=2 causal bias packed "
               "bias_per=batch,head,both,toeplitz"},
    /* Dropout: beside every feature, across the squares of its numbers, in heads and sequences. */
    {"random", "q=1,20,70,33 k=40,70,130,65 d=64,40,128,64 batch=2 heads=4 kv=2 causal=0,1,0,0 dropout=0.1,0.5 "
               "in=both,both,quick,quick"},
    {"markers", "q=50 k=140 batch=2 heads=2 dropout=0.3 in=quick"},
    {"random", "q=30,50 k=90,140 batch=3 heads=4 kv=2 causal packed=1,0 lengths=0,1 dropout=0.2 in=quick"},
    {"random", "q=40 k=100 batch=2 heads=2 bias=1,0 bias_per=both,all cap=0,20 sinks=0,1 window=-1:-1,30:0 "
               "dropout=0.2 in=both"},
    {"random", "q=200 k=300 d=64,128,256 batch=2 heads=3 causal dropout=0.1 in=gpu"},
    {"zero_q", "q=9 k=5000 dropout=0.9 in=quick"},
    /* All together. */
    {"random", "q=50 k=140 heads=2 kv=1 window=40:0 cap=20 sinks in=both"},
    {"random", "q=50 k=140 batch=4 heads=4 kv=2 window=40:0 cap=20 sinks "
               "packed=0,0,1,1 page=0,0,0,32 lie=contiguous,blhd,blhd,blhd in=quick"},
    {"mask_some", "q=50 k=140 batch=4 heads=4 kv=2 bias window=40:0 cap=20 sinks "
                  "packed page=32 lie=blhd in=quick"},
    {"random", "q=8 k=140 batch=2 heads=4 kv=2 bias window=40:0 cap=20 sinks packed "
               "page=32 lie=blhd in=both"},
    /* Keys and values in 8 bits, the query in any type: (in 8 bits too, every case is) */
    {"random outlier zero_q", "q=1,3,20,65 k=300,70,129,200 d=64,64,128 batch=2 heads=4,2 kv=2,1 "
               "cache=e4m3,int8 in=both,both,quick"},
    {"random", "q=1,1,4,40 k=530,257,300,130 d=128,64,64 batch=3 heads=8 kv=2 causal page=16,64,32 "
               "lengths=0,1,0 cache=e4m3,int8 lie=contiguous,blhd in=both,both,quick"},
    {"markers", "q=1,40 k=130 d=64,128 batch=4 heads=4 kv=2 causal=0,1 packed=0,1 lengths=1,0 "
                "window=90:0,-1:-1 cache=int8,e4m3 in=quick"},
    {"nan_k nan_v", "q=9 k=70 bias at=64 cache=e4m3 in=quick"},
    {"random", "q=1,512 k=20000,2048 d=128 batch=4 heads=32 kv=8 cache=e4m3,int8 in=gpu"},
    /* Sizes at which a GPU is full: several waves of blocks, long loops. */
    {"random", "q=1000 k=1024 d=64,128 batch=2 heads=12 kv=4 causal=1,0 in=gpu"},
    {"random", "q=1 k=20000 d=64,128 batch=2 heads=32 kv=8 in=gpu"},
    {"shift_20", "q=4097 k=4095 d=64,128 causal=1,0 in=gpu"},
    {"markers", "q=2048 k=2048 d=64,128 causal=0,1 in=gpu"},
    {"outlier", "q=300 k=8000 d=64,128 heads=3 kv=1 at=4000 in=gpu"},
    {"random steep", "q=7 k=3700,7300,3700 d=64,128,256 heads=150 kv=2 in=gpu"},
    /* every instance of stage 5's last rungs: head dims, both masks, short, long tiles */
    {"steep", "q=300 k=896,4096 d=64,64,128,128,256,256 in=gpu"},
    {"steep", "q=300 k=896,4096 d=64,64,128,128,256,256 causal in=gpu"},
    {"spike", "q=300 k=896,4096 d=64,64,128,128,256,256 at=696,3896 in=gpu"},
    {"spike", "q=300 k=896,4096 d=64,64,128,128,256,256 at=696,3896 causal in=gpu"},
    {0}};

/* A smaller selection of the same. */
static const struct cases log_form[] = {
    {"random", "q=1,1,2,2,5,5,17,17,64,64 k=1,1,5,5,2,2,33,33,64,64 d=40 dv=24 heads=2 "
               "kv=1 causal=0,1 in=both"},
    {"random", "q=33,33,113,113 k=129,129,203,203 d=40 dv=24 heads=2 kv=1 causal=0,1"},
    {"wide equal ascending descending outlier shift_20 shift_200 large zero_q",
     "q=10 k=70 in=both"},
    {"random mask_some", "q=18 k=70 bias in=both"},
    {"mask_row", "q=18 k=70 bias at=3 in=both"},
    {"mask_first", "q=18 k=70 bias at=65 in=both"},
    {0}};

/* One query: the answers for all prefixes of the keys, or after updates. */
#define ONE_QUERY                                                                       \
    {"random", "q=1 k=1,2,3,4,7,8,16,17,33,64,65,100,129,257,1000 d=16 dv=16,24 "       \
               "batch=1,2 heads=2 kv=2,1 in=both,both,both,both,both,both,both,both,"   \
               "both,both,both,both,full"},                                             \
    {"wide equal ascending descending outlier shift_20 shift_200 large zero_q markers", \
     "q=1 k=37,200 d=16,32 at=5,100 in=both,full"},                                     \
    {"mask_first", "q=1 k=40 d=16 bias at=17 in=both"},                                 \
    {"mask_some", "q=1 k=40 d=16 bias in=both"},                                        \
    {"mask_last", "q=1 k=40 d=16 bias at=17 in=both"}
static const struct cases scan[] = {ONE_QUERY, {0}};
static const struct cases update[] = {
    ONE_QUERY, {"nan_k", "q=1 k=37 d=16 at=20 in=both"}, {0}}; /* the bad key goes */

static const struct cases backward[] = {
    {"random", "q=1,1,2,2,5,5,16,16,17,17,33,33 k=1,1,5,5,2,2,16,16,33,33,17,17 "
               "causal=0,1 in=both"},
    {"random", "q=64,64,65,65 k=64,64,129,129 causal=0,1 in=quick"},
    {"random", "q=1,1,200,200,128,128,113,113,260,260 "
               "k=200,200,1,1,128,128,203,203,300,300 causal=0,1"},
    {"random", "q=35 k=70 d=1,7,40,64,128,128,256 dv=1,59,24,128,64,128,16 causal=0,1 "
               "in=both,both,both,both,full"},
    /* several heads, each of several tiles of keys and of queries, without a mask */
    {"random", "q=70,260 k=400,200 heads=12,1 in=both"},
    /* more tiles than blocks of threads that last */
    {"random", "q=130 k=200 heads=17 causal=0,1"},
    {"random", "q=19 k=35 d=32 dv=24 batch=2,1,2,1,3 heads=1,4,6,8,2 kv=1,2,2,1,2 "
               "causal=0,1 in=both,both,both,quick"},
    {"wide equal ascending descending shift_20 shift_200 large zero_q markers tiny",
     "q=21,70 k=70,77 d=64,40 causal=0,1 in=both,full"},
    {"outlier", "q=33 k=70 at=0,23,46,69 in=both,quick"},
    {"high", "q=20,70 k=20,140 scale=1e-4 causal=0,1 in=both"},
    /* weights and ds that 16 bits hold exactly */
    {"powers", "q=20,70 k=256,128 d=64,128 scale=0.125 in=both"},
    {"powers", "q=37,21 k=128 heads=1,2 bias=1,0 sinks=0,1 in=both"},
    {"powers", "q=20 k=256 scale=0.6931472 in=both"},
    {"nan_q nan_k nan_v nan_v_one", "q=20 k=70 heads=2 at=11 in=quick"},
    {"nan_q nan_k nan_v nan_v_one", "q=70 k=70 at=40 causal"},
    {"nan_k inf_k nan_v inf_v", "q=20 k=70 bias at=37 in=quick"},
    {"random mask_some", "q=18 k=70 bias in=both"},
    {"mask_row", "q=18 k=70 bias at=3 in=both"},
    {"mask_first", "q=18 k=70 bias at=65 in=quick"},
    {"mask_but_one", "q=18 k=70 bias at=69 in=quick"},
    {"finite", "q=18 k=70 bias at=30"},
    /* more queries than keys: the first rows see nothing, and their gradients are 0 */
    {"random", "q=90 k=33 causal in=quick"},
    {"random", "q=33 k=70 d=40 window=0:0,7:5,-1:4,64:0 in=both,both,quick"},
    {"random", "q=40,300 k=300 window=150:0,200:-1 in=both,full"},
    {"wide", "q=21 k=70 cap=0.5,30 in=both,quick"},
    {"random", "q=21 k=70 cap=2,1e6 in=both,quick"},
    {"random", "q=21,70 k=70,33 heads=5,4 kv=1,2 causal=0,1 sinks in=both,quick"},
    {"random", "q=30,1 k=40,1 batch=5,4 heads=4,1 kv=2,1 causal=1,0 packed in=quick"},
    {"random", "q=70 k=90 batch=4 heads=4 kv=2 packed window=-1:-1,20:5 sinks=1,0 in=both"},
    {"random", "q=280 k=300 batch=2 heads=2 kv=1 packed window=150:0 in=both"},
    {"random", "q=70 k=150 d=64,128,256 batch=3 heads=2 kv=1 causal=0,1,1 packed lie=blhd in=both"},
    {"random", "q=400 k=700 d=64,128,256 batch=6 heads=6 kv=2 causal packed in=gpu"},
    {"random", "q=37 k=67 d=40,64 dv=24,128 batch=2 heads=4 kv=2 lie=blhd in=both"},
    {"random", "q=20 k=70 batch=2 heads=4 kv=2 bias bias_per=batch,head,both,toeplitz in=both"},
    {"random", "q=20,70,40 k=70,33,90 d=64,40,128 batch=2 heads=4 kv=2 causal=0,1,0 bias=0,0,1 "
               "dropout=0.1,0.5,0.2 in=both"},
    {"random", "q=30,280 k=40,300 batch=3,2 heads=4 kv=2 causal packed=1,0 cap=0,20 sinks=0,1 dropout=0.2 in=quick"},
    {"random", "q=200 k=300 d=64,128,256 batch=2 heads=3 causal dropout=0.1 in=gpu"},
    /* The gradient of a bias: of each score, or summed over those that share an element. */
    {"random", "q=20,70,40,33 k=70,33,90,40 d=64,40,128,64 batch=2 heads=4 kv=2 causal=0,1,0,0 bias dbias "
               "bias_per=both,head,batch,all in=both"},
    {"random", "q=40,130 k=150 batch=2 heads=2 bias dbias bias_per=both,head cap=20 window=40:0 sinks=0,1 "
               "dropout=0,0.2 in=quick"},
    {"random mask_some", "q=30 k=90 batch=3 heads=4 kv=2 bias dbias packed=1,0 lie=contiguous,blhd in=quick"},
    {"random", "q=200 k=300 d=64,128 batch=2 heads=3 causal bias dbias bias_per=head,both in=gpu"},
    {"nan_do", "q=20,70 k=70 heads=2 at=11 causal=0,1 in=both"},
    {"random", "q=50 k=140 heads=2 kv=1 bias window=40:0 cap=20 sinks in=quick"},
    /* Sizes at which gradient_in_order has heads of both kinds. */
    {"random", "q=70 k=1100 d=128 heads=4 causal in=both"},
    {"random", "q=150 k=4000 d=64,256 heads=13,6 window=-1:60 in=gpu"},
    {0}};

const struct cases *const cases_of[] = {
    [OP_SOFTMAX] = softmax, [OP_LOGSOFTMAX] = softmax, [OP_ATTENTION] = attention,
    [OP_LOGSOFTMAX_ATTENTION] = log_form, [OP_MEAN] = mean, [OP_SCAN] = scan,
    [OP_UPDATE] = update, [OP_FUSED_REDUCTION] = fused, [OP_BACKWARD] = backward};
_Static_assert(sizeof cases_of / sizeof *cases_of == N_OPS, "each operation's cases");
