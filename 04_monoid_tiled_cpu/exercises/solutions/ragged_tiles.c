/* ragged_tiles.c: exercise of stage 4, 15 points: tiles of keys, one of them short.
 *
 *     the last tile ends with key n - 1, each of the others where the next one begins
 *
 * Task: fill fold_tiles(): go through the n keys of a query in tiles of Bc, of which only the first may
 * be short; push_tile(), given, takes each in.
 * May be assumed: nothing about n: it may be 0, less than Bc, or no multiple of it.
 *
 * Point: cases none, full, ragged.
 * Time: 40 minutes.
 * Hint: the number of keys of the first tile is 1 to Bc: a remainder, shifted by one.
 * Hint: n = 0 gives no tile.  For n % Bc == 0 no tile is short.
 * Right or wrong:  make exercise 4 EX=ragged_tiles */
#include "course/exercise.h"

/* The judge computes tile t: its first key, and how many it has. */
static void push_tile(size_t first, size_t n_keys) { ask('t', (long)first, (long)n_keys, NULL, 0, NULL, 0); }

/* Keys 0 .. n - 1 in tiles of Bc keys. */
static void fold_tiles(size_t n, size_t Bc)
{
    /* solution begin */
    size_t n_keys = n ? (n - 1) % Bc + 1 : 0;
    for (size_t first = 0; first < n; first += n_keys, n_keys = Bc) push_tile(first, n_keys);
    /* skeleton
    // Your code, with calls of push_tile().
    push_tile(0, n < Bc ? n : Bc);
    solution end */
}

/* The judge's call. */
void answer(const struct call *c)
{
    fold_tiles((size_t)c->n[0], (size_t)c->n[1]);
}
