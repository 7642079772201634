/* tile.h: what tile.c does, for threads.c. */
#ifndef TILE_H
#define TILE_H

#include "monoid.h"
#include "stage.h"

enum { Br = 16, Bc = 32 }; /* queries and keys of a tile */

void fold_tiles(const struct head *h, size_t i, size_t rows, size_t first, size_t end,
                struct aggregate *x);
void attention_in_tiles(const struct head *h);

#endif
